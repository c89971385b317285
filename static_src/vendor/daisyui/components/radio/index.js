import radio from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixedradio = addPrefix(radio, prefix);
  addComponents({ ...prefixedradio });
};
