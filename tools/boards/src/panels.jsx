// One panel of a board, drawn by the component of its kind.
import { dateTime, reduceField, getFieldDisplayName, VizOrientation } from '@grafana/data';
import { BigValue, TimeSeries, Table, VizRepeater } from '@grafana/ui';
import { heatCells, seriesFrames, tableFrame, theme } from './frames.js';
import { Heatmap } from './heatmap.jsx';

const { from, to } = window.BOARD;
const RANGE = { from: dateTime(from * 1000), to: dateTime(to * 1000) };
RANGE.raw = RANGE;

/** What stands where a panel's queries found nothing. */
function Nothing({ panel }) {
  return (
    <div className="nothing" data-empty={panel.title}>
      No data
    </div>
  );
}

function Series({ panel, results, width, height }) {
  const frames = seriesFrames(panel, results, 'palette-classic');
  if (!frames.length) return <Nothing panel={panel} />;
  const legend = panel.options.legend;
  return (
    <TimeSeries frames={frames} width={width} height={height} timeRange={RANGE} timeZone="utc" legend={legend} />
  );
}

function Stat({ panel, results, width, height }) {
  const frames = seriesFrames(panel, results, 'thresholds');
  if (!frames.length) return <Nothing panel={panel} />;
  const { colorMode, graphMode, textMode, justifyMode, wideLayout } = panel.options;
  const values = () =>
    frames.map((frame) => {
      const [time, field] = frame.fields;
      const last = reduceField({ field, reducers: ['lastNotNull'] }).lastNotNull;
      const title = getFieldDisplayName(field, frame, frames);
      const sparkline = graphMode === 'area' && field.values.length > 1 ? { y: field, x: time } : undefined;
      return { display: { ...field.display(last), title }, sparkline };
    });
  const alone = frames.length === 1 && textMode === 'auto';
  return (
    <VizRepeater
      getValues={values}
      width={width}
      height={height}
      source={results}
      renderCounter={0}
      orientation={VizOrientation.Auto}
      autoGrid
      itemSpacing={3}
      renderValue={({ value, width: wide, height: high, count }) => (
        <BigValue
          value={alone ? { ...value.display, title: '' } : value.display}
          sparkline={value.sparkline}
          colorMode={colorMode}
          graphMode={graphMode}
          textMode={textMode}
          justifyMode={justifyMode}
          wideLayout={wideLayout}
          count={count}
          width={wide}
          height={high}
          theme={theme}
        />
      )}
    />
  );
}

function Grid({ panel, results, width, height }) {
  const frame = tableFrame(panel, results);
  return frame ? <Table data={frame} width={width} height={height} cellHeight="sm" /> : <Nothing panel={panel} />;
}

function Heat({ panel, results, width, height }) {
  const cells = heatCells(panel, results);
  return cells ? <Heatmap cells={cells} panel={panel} width={width} height={height} /> : <Nothing panel={panel} />;
}

export const KINDS = { timeseries: Series, stat: Stat, table: Grid, heatmap: Heat };
