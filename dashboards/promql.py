"""Writes PromQL over the catalogue: an unknown metric, label or label value is refused at once."""

from dataclasses import dataclass

from surgetank.telemetry.catalog import MetricSpec, MetricType, find

# What Prometheus adds to every series when it scrapes.
TARGET_LABELS = ("instance", "job")


class PromqlError(ValueError):
    """An expression names something that the catalogue does not have, or misuses its type."""


@dataclass(frozen=True, slots=True)
class Not:
    """A matcher's values, to be excluded."""

    values: tuple[str, ...]


def no(*values: str) -> Not:
    """Any value but these."""
    return Not(values)


Match = str | tuple[str, ...] | Not


@dataclass(frozen=True, slots=True)
class Scope:
    """Where expressions look: `variables` are matched wherever a metric has their label."""

    window: str  # default range of rates
    variables: tuple[tuple[str, str], ...] = ()  # label, Grafana variable

    def select(self, name: str, suffix: str = "", /, **match: Match) -> str:
        """An instant selector of the catalogue's metric `name`, with its variables."""
        spec = _found(name)
        _check_labels(spec, match)
        matchers = [
            f'{label}=~"{value}"'
            for label, value in self.variables
            if label in (*spec.label_names, *TARGET_LABELS) and label not in match
        ]
        matchers += [_matcher(spec, label, wanted) for label, wanted in match.items()]
        return f"{spec.full_name}{suffix}" + ("{" + ",".join(matchers) + "}" if matchers else "")

    def rate(self, name: str, *by: str, window: str = "", **match: Match) -> str:
        """Events or amount per second, summed over what `by` does not keep."""
        return self._over_time("rate", name, by, window, match)

    def increase(self, name: str, *by: str, window: str = "", **match: Match) -> str:
        """Events or amount in the window, summed over what `by` does not keep."""
        return self._over_time("increase", name, by, window, match)

    def gauge(self, how: str, name: str, *by: str, **match: Match) -> str:
        """A gauge aggregated by `how`: sum, max, min or avg."""
        spec = _typed(name, MetricType.GAUGE)
        return f"{how}{_by(spec, by)}({self.select(name, **match)})"

    def quantile(
        self, q: float, name: str, *by: str, window: str = "", ago: str = "", **match: Match
    ) -> str:
        """The q-quantile of a histogram over the window, which ended so long `ago`; absent when
        nothing was observed."""
        spec = _typed(name, MetricType.HISTOGRAM)
        span = self._span(window) + (f" offset {ago}" if ago else "")
        rates = f"rate({self.select(name, '_bucket', **match)}{span})"
        seen = self._part("_count", name, by, span, match)
        quantile = f"histogram_quantile({q:g}, sum{_by(spec, (*by, 'le'))}({rates}))"
        return f"({quantile} and ({seen} > 0))"

    def events(self, name: str, *by: str, window: str = "", **match: Match) -> str:
        """Observations of a histogram per second."""
        return self._part("_count", name, by, self._span(window), match)

    def mean(self, name: str, *by: str, window: str = "", **match: Match) -> str:
        """Mean of a histogram's observations over the window; absent without any."""
        span = self._span(window)
        total = self._part("_sum", name, by, span, match)
        return ratio(total, self._part("_count", name, by, span, match))

    def _span(self, window: str) -> str:
        return f"[{window or self.window}]"

    def _part(
        self, suffix: str, name: str, by: tuple[str, ...], span: str, match: dict[str, Match]
    ) -> str:
        spec = _typed(name, MetricType.HISTOGRAM)
        selector = self.select(name, suffix, **match)
        return f"sum{_by(spec, by)}(rate({selector}{span}))"

    def _over_time(
        self, function: str, name: str, by: tuple[str, ...], window: str, match: dict[str, Match]
    ) -> str:
        spec = _typed(name, MetricType.COUNTER)
        selector = self.select(name, **match)
        return f"sum{_by(spec, by)}({function}({selector}{self._span(window)}))"


def ratio(part: str, whole: str) -> str:
    """part / whole where there is a whole, else absent: 0/0 is NaN, which fires or hides alerts."""
    return f"({part}) / (({whole}) > 0)"


def nonzero(expr: str, label: str, nothing: str = "none") -> str:
    """What `expr` has above 0 by `label`; one series `nothing` at 0 while there is nothing."""
    empty = f'label_replace(sum({expr}) == 0, "{label}", "{nothing}", "", "")'
    return f"{expr} > 0 or {empty}"


def _found(name: str) -> MetricSpec:
    try:
        return find(name)
    except LookupError as error:
        raise PromqlError(str(error)) from error


def _typed(name: str, wanted: MetricType) -> MetricSpec:
    spec = _found(name)
    if spec.type is not wanted:
        raise PromqlError(f"{name} is a {spec.type}, not a {wanted}")
    return spec


def _by(spec: MetricSpec, labels: tuple[str, ...]) -> str:
    _check_labels(spec, labels)
    return f" by ({', '.join(labels)}) " if labels else ""


def _check_labels(spec: MetricSpec, labels: tuple[str, ...] | dict[str, Match]) -> None:
    allowed = (*spec.label_names, *TARGET_LABELS, "le")
    for label in labels:
        if label not in allowed:
            raise PromqlError(f"{spec.name} has no label {label}; it has: {', '.join(allowed)}")


def _matcher(spec: MetricSpec, label: str, wanted: Match) -> str:
    negated = isinstance(wanted, Not)
    values = wanted.values if isinstance(wanted, Not) else wanted
    values = (values,) if isinstance(values, str) else values
    _check_values(spec, label, values)
    exact = len(values) == 1
    operator = {(True, False): "=", (False, False): "=~", (True, True): "!=", (False, True): "!~"}
    return f'{label}{operator[exact, negated]}"{"|".join(values)}"'


def _check_values(spec: MetricSpec, label: str, values: tuple[str, ...]) -> None:
    """A closed label's values are all known; an open label may have any."""
    for known in spec.labels:
        if known.name == label and known.openness == "closed":
            unknown = set(values) - set(known.values)
            if unknown:
                raise PromqlError(f"{spec.name}: {label} is never {', '.join(sorted(unknown))}")
