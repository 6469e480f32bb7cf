// Draws one board, window.BOARD, in Grafana's grid; document.body.dataset.drawn tells the end.
import '@fontsource/inter/latin-400.css';
import '@fontsource/inter/latin-500.css';
import './page.css';
import 'uplot/dist/uPlot.min.css';
import { createRoot } from 'react-dom/client';
import { ThemeContext } from '@grafana/data';
import { PanelChrome } from '@grafana/ui';
import { theme } from './frames.js';
import { KINDS } from './panels.jsx';

const COLUMNS = 24;
const CELL = 30;
const GAP = 8;
const EDGE = 16;
const { dashboard, results, width } = window.BOARD;
const column = (width - 2 * EDGE + GAP) / COLUMNS;

/** The panels in their places; a row in which nothing was found is folded, as a person would. */
function placed() {
  const rows = [];
  for (const panel of dashboard.panels) {
    if (panel.type === 'row') rows.push({ title: panel, panels: [] });
    else rows.at(-1).panels.push(panel);
  }
  let lifted = 0;
  return rows.flatMap(({ title, panels }) => {
    const empty = panels.every(({ id }) => !Object.values(results[id] ?? {}).some((found) => found.length));
    const bottom = Math.max(...panels.map(({ gridPos }) => gridPos.y + gridPos.h));
    const moved = (panel) => ({ ...panel, gridPos: { ...panel.gridPos, y: panel.gridPos.y - lifted } });
    const head = { ...moved(title), folded: empty ? panels : [] };
    const shown = empty ? [] : panels.map(moved);
    lifted += empty ? bottom - title.gridPos.y - 1 : 0;
    return [head, ...shown];
  });
}

function place({ x, y, w, h }) {
  return { left: EDGE + x * column, top: y * (CELL + GAP), width: w * column - GAP, height: h * (CELL + GAP) - GAP };
}

function Drawn({ panel }) {
  const at = place(panel.gridPos);
  if (panel.type === 'row') {
    const { folded } = panel;
    return (
      <h2 style={at}>
        {folded.length ? '\u203a' : '\u2304'} {panel.title}
        {folded.length > 0 && <small> ({folded.length} panels)</small>}
        {folded.map(({ id, title }) => <i key={id} data-empty={title} />)}
      </h2>
    );
  }
  const Kind = KINDS[panel.type];
  return (
    <div style={at} className="panel">
      <PanelChrome title={panel.title} width={at.width} height={at.height}>
        {(wide, high) => <Kind panel={panel} results={results[panel.id] ?? {}} width={wide} height={high} />}
      </PanelChrome>
    </div>
  );
}

function Page() {
  const panels = placed();
  const bottom = Math.max(...panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  const variables = dashboard.templating.list.filter(({ type }) => type === 'query');
  return (
    <ThemeContext.Provider value={theme}>
      <header>
        <h1>{dashboard.title}</h1>
        {variables.map(({ name, label }) => (
          <span key={name} className="variable">
            <b>{label}</b>
            {window.BOARD.variables[name]}
          </span>
        ))}
      </header>
      <main style={{ height: bottom * (CELL + GAP) + GAP }}>
        {panels.map((panel) => (
          <Drawn key={panel.id} panel={panel} />
        ))}
      </main>
    </ThemeContext.Provider>
  );
}

/** Legends measure themselves after the first drawing: wait until nothing moves any more. */
async function settled() {
  let before = '';
  for (;;) {
    await new Promise((done) => setTimeout(done, 250));
    const now = [...document.querySelectorAll('canvas')].map(({ width: w, height: h }) => `${w}x${h}`).join();
    if (now === before) return;
    before = now;
  }
}

async function draw() {
  await document.fonts.load('400 14px Inter');
  await document.fonts.load('500 14px Inter');
  const style = document.documentElement.style;
  style.setProperty('--canvas', theme.colors.background.canvas);
  style.setProperty('--text', theme.colors.text.primary);
  style.setProperty('--quiet', theme.colors.text.secondary);
  style.setProperty('--line', theme.colors.border.medium);
  createRoot(document.getElementById('board')).render(<Page />);
  await settled();
  document.body.dataset.drawn = 'yes';
}

draw();
