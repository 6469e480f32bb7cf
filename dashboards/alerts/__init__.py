"""Alert rules by what they watch, and who hears of them."""
