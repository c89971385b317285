import collapse from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixedcollapse = addPrefix(collapse, prefix);
  addComponents({ ...prefixedcollapse });
};
