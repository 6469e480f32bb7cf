"""The console: one page that shows the service as it runs, and acts on it through the admin API."""
