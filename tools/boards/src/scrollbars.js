// Grafana takes the default export of this CommonJS package as bundlers gave it before they followed Node.
import { Scrollbars } from '../node_modules/@grafana/ui/node_modules/react-custom-scrollbars-2/lib/index.js';

export { Scrollbars };
export default Scrollbars;
