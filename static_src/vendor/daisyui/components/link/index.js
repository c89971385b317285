import link from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixedlink = addPrefix(link, prefix);
  addComponents({ ...prefixedlink });
};
