import skeleton from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixedskeleton = addPrefix(skeleton, prefix);
  addComponents({ ...prefixedskeleton });
};
