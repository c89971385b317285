import carousel from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixedcarousel = addPrefix(carousel, prefix);
  addComponents({ ...prefixedcarousel });
};
