import glass from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addUtilities, prefix = '' }) => {
  const prefixedglass = addPrefix(glass, prefix);
  addUtilities({ ...prefixedglass });
};
