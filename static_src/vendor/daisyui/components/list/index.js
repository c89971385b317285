import list from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixedlist = addPrefix(list, prefix);
  addComponents({ ...prefixedlist });
};
