import dracula from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixeddracula = addPrefix(dracula, prefix);
  addBase({ ...prefixeddracula });
};
