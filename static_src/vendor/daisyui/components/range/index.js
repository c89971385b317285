import range from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixedrange = addPrefix(range, prefix);
  addComponents({ ...prefixedrange });
};
