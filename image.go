package bourse

import (
	"strings"
	"time"
)

// ImageRef contains the parts of an image's name. Clients join them as
// registry/repository:tag@digest. The result must be a name that can be used to create machines.
type ImageRef struct {
	Registry   string            `json:"registry"`
	Repository string            `json:"repository"`
	Tag        string            `json:"tag,omitempty"`
	Digest     string            `json:"digest,omitempty"` // "sha256:…"; empty: the name was not resolved
	Labels     map[string]string `json:"labels,omitempty"`
}

// Default registry and tag.
const (
	DefaultRegistry = "registry-1.docker.io"
	DefaultTag      = "latest"
)

// ImageKind is the kind of an image. Its value is the name of the driver that runs such images.
type ImageKind string

// Kinds of images.
const (
	HostImage     ImageKind = "process"   // ImageHost: a command on the host
	RegistryImage ImageKind = "container" // an image in a registry, which is pulled and unpacked
	PollerImage   ImageKind = "pull"      // ImagePull: a job that a poller runs
)

// KindOfImage determines the kind of an image from its name. It is RegistryImage for all images
// except ImageHost and ImagePull.
func KindOfImage(image string) ImageKind {
	switch image {
	case ImageHost:
		return HostImage
	case ImagePull:
		return PollerImage
	}
	return RegistryImage
}

// ImageKind returns the kind of c's image.
func (c *Config) ImageKind() ImageKind { return KindOfImage(c.Image) }

// ParseImageRef parses the name of an image. A name without a registry belongs to Docker Hub. The
// images "host" and "pull" have no registry, so a client that joins registry/repository:tag sends
// "/host:latest". Brokers accept that name as "host".
func ParseImageRef(image string) ImageRef {
	if KindOfImage(image) != RegistryImage {
		return ImageRef{Repository: image, Tag: DefaultTag}
	}
	name, digest, _ := strings.Cut(image, "@")
	ref := ImageRef{Registry: DefaultRegistry, Repository: name, Digest: digest}
	// The part before the first slash is a registry if it looks like a host name.
	if first, rest, ok := strings.Cut(name, "/"); ok && (strings.ContainsAny(first, ".:") || first == "localhost") {
		ref.Registry, ref.Repository = first, rest
	}
	if ref.Registry == "docker.io" {
		ref.Registry = DefaultRegistry
	}
	if i := strings.LastIndexByte(ref.Repository, ':'); i >= 0 {
		ref.Repository, ref.Tag = ref.Repository[:i], ref.Repository[i+1:]
	}
	if ref.Registry == DefaultRegistry && !strings.Contains(ref.Repository, "/") {
		ref.Repository = "library/" + ref.Repository
	}
	if ref.Tag == "" && ref.Digest == "" {
		ref.Tag = DefaultTag
	}
	return ref
}

// String returns the name in the form registry/repository[:tag][@digest].
func (r ImageRef) String() string {
	s := r.Registry + "/" + r.Repository
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if r.Digest != "" {
		s += "@" + r.Digest
	}
	return s
}

// Image describes an image on a worker. The image may still be incomplete while it is being
// pulled.
type Image struct {
	Ref    ImageRef      `json:"ref"`              // the image's name; its digest resolves to the manifest for the worker's platform
	Bytes  int64         `json:"bytes"`            // compressed size of the config and all layers
	Disk   int64         `json:"disk,omitempty"`   // bytes on the worker's disk; layers shared with other images are included
	Pull   *PullProgress `json:"pull,omitempty"`   // progress of the pull; nil: the image is complete
	UsedAt time.Time     `json:"used_at,omitzero"` // when a machine was last started from the image, or when it was pulled
	InUse  bool          `json:"in_use,omitempty"` // a machine uses the image, so it is not evicted
}

// PullProgress describes the progress of a pull.
type PullProgress struct {
	Status string `json:"status"`          // "resolving", "pulling", "unpacking", "done" or "failed"
	Bytes  int64  `json:"bytes"`           // bytes pulled so far
	Total  int64  `json:"total"`           // total number of bytes; 0: not known yet
	Code   Code   `json:"code,omitempty"`  // code of the error if the pull has failed; otherwise ""
	Error  string `json:"error,omitempty"` // text of that error
}
