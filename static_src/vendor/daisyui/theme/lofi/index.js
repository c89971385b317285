import lofi from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixedlofi = addPrefix(lofi, prefix);
  addBase({ ...prefixedlofi });
};
