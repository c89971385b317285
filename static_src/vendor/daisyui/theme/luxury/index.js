import luxury from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixedluxury = addPrefix(luxury, prefix);
  addBase({ ...prefixedluxury });
};
