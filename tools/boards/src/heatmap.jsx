// A heatmap on Grafana's own plot: its package has the plot and the axes, but no heatmap.
import { useMemo } from 'react';
import { dateTime, FieldType, getValueFormat, formattedValueToString, toDataFrame } from '@grafana/data';
import { UPlotChart, UPlotConfigBuilder, AxisPlacement, ScaleDirection, ScaleOrientation } from '@grafana/ui';
import { theme } from './frames.js';

const DARK = ['#3a2113', '#6b3310', '#a3490d', '#d86a1c', '#ff9830', '#ffcb7d'];
const LIGHT = ['#fff3e0', '#ffd8a8', '#ffb357', '#f28a1c', '#d1650a', '#8f4004'];

export function Heatmap({ cells, panel, width, height }) {
  const config = useMemo(() => build(cells, panel), [cells, panel]);
  const frame = useMemo(() => plotted(cells), [cells]);
  const range = { from: dateTime(window.BOARD.from * 1000), to: dateTime(window.BOARD.to * 1000) };
  return (
    <UPlotChart config={config} data={[cells.times, ...cells.counts]} width={width} height={height} timeRange={range} alignedFrame={frame} />
  );
}

function plotted({ times, counts }) {
  return toDataFrame({
    fields: [
      { name: 'Time', type: FieldType.time, values: times },
      ...counts.map((values, row) => ({ name: `${row}`, type: FieldType.number, values })),
    ],
  });
}

function build({ times, edges, counts }, panel) {
  const written = getValueFormat(panel.fieldConfig.defaults.unit);
  const builder = new UPlotConfigBuilder('browser');
  const { from, to } = window.BOARD;
  builder.addScale({
    scaleKey: 'x',
    isTime: true,
    orientation: ScaleOrientation.Horizontal,
    direction: ScaleDirection.Right,
    range: () => [from * 1000, to * 1000],
  });
  builder.addScale({
    scaleKey: 'y',
    isTime: false,
    orientation: ScaleOrientation.Vertical,
    direction: ScaleDirection.Up,
    range: () => [0, edges.length],
  });
  builder.addAxis({ scaleKey: 'x', isTime: true, placement: AxisPlacement.Bottom, theme });
  builder.addAxis({
    scaleKey: 'y',
    placement: AxisPlacement.Left,
    theme,
    splits: () => edges.map((_, row) => row + 1).filter((row) => row % 3 === 0),
    formatValue: (row) => edges[row - 1] === Infinity ? '+Inf' : formattedValueToString(written(edges[row - 1])),
  });
  const most = Math.max(...counts.flat(), 1);
  const colors = theme.isDark ? DARK : LIGHT;
  builder.addHook('draw', (plot) => {
    const wide = times.length > 1 ? times[1] - times[0] : 1000;
    counts.forEach((row, y) =>
      row.forEach((count, x) => {
        if (!count) return;
        const left = plot.valToPos(Math.max(times[x] - wide, from * 1000), 'x', true);
        const right = plot.valToPos(times[x], 'x', true);
        const top = plot.valToPos(y + 1, 'y', true);
        const bottom = plot.valToPos(y, 'y', true);
        plot.ctx.fillStyle = colors[Math.min(colors.length - 1, Math.floor(Math.sqrt(count / most) * colors.length))];
        plot.ctx.fillRect(left, top, Math.max(right - left - 1, 1), bottom - top - 1);
      })
    );
  });
  return builder;
}
