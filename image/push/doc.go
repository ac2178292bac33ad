// Package push uploads an image from an archive on this host to a registry.
//
// An archive is an OCI image layout or the output of "docker save", as a tar file or as a
// directory with the contents of such a file. The contents are first copied to a temporary
// directory, in which each file is named by its computed digest. They are then verified, and
// pushed by containerd's registry client, which is also used for pulls. Layers that the registry
// already has are not sent.
//
// Archives are untrusted; see [Push] for the bounds.
package push
