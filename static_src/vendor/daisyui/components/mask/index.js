import mask from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixedmask = addPrefix(mask, prefix);
  addComponents({ ...prefixedmask });
};
