// Package push sends an image that is in an archive on this host to a registry.
//
// An archive is an OCI image layout or what "docker save" writes: a tar file, or a
// directory with such a file's content. It is copied into a temporary directory under
// the digests of what is in it, checked there, and pushed by containerd's client of
// registries, which also speaks for pulls. Layers that the registry has are not sent again.
//
// Nothing in an archive is believed: see [Push] for its bounds.
package push
