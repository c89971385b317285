import card from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixedcard = addPrefix(card, prefix);
  addComponents({ ...prefixedcard });
};
