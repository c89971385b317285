import autumn from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixedautumn = addPrefix(autumn, prefix);
  addBase({ ...prefixedautumn });
};
