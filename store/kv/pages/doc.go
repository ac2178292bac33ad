// Package pages reads a bbolt file page by page and trusts none of them.
//
// bbolt itself believes what it maps: a flipped bit in a page may have it
// panic, run for ever, read beyond the file, or find nothing where something
// was. [Read] follows the same pages with every reference checked: each page is
// visited once at most, lies within the file, says its own number, and has its
// keys in order and between those of the page above. It allocates no more than
// the largest page that the file really has, and goes on behind what is damaged.
//
// It knows the form of a file (see [File]), not what its values mean: a
// checksum of values is their writer's.
package pages
