// Package push uploads images from archives on this host to registries.
//
// An archive is an OCI image layout or the output of "docker save", either as a tar file or as a directory with the
// same contents. The contents are first copied to a temporary directory, where each file is named after its computed
// digest. They are then verified and pushed with containerd's registry client, which is also used for pulls. Layers
// that the registry already has are not sent.
//
// Archives are not trusted; see [Push] for the limits.
package push
