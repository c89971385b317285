import retro from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixedretro = addPrefix(retro, prefix);
  addBase({ ...prefixedretro });
};
