import bumblebee from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixedbumblebee = addPrefix(bumblebee, prefix);
  addBase({ ...prefixedbumblebee });
};
