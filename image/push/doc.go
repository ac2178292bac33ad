// Package push uploads an image from an archive on this host to a registry.
//
// An archive is an OCI image layout or the output of "docker save", as a tar file or as a
// directory with the contents of such a file. Its contents are copied to a temporary directory,
// where files are named by computed digests, verified, and pushed by containerd's registry
// client, which is also used for pulls. Layers that the registry already has are not sent.
//
// Archives are untrusted; see [Push] for the bounds.
package push
