import halloween from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixedhalloween = addPrefix(halloween, prefix);
  addBase({ ...prefixedhalloween });
};
