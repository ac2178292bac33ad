// Package build makes the image of an app from its Dockerfile, with a builder that the host
// has, and pushes it to a registry.
//
// There is no builder of our own. Each that is known writes an archive, which package
// image/push pushes: credentials, plain HTTP and what is said of a registry's refusals are
// the same for every builder, and the image is known by the digest of what was sent.
package build
