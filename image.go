package bourse

import (
	"strings"
	"time"
)

// ImageRef contains the parts of an image's name. Clients join them as
// registry/repository:tag@digest and expect that image to run.
type ImageRef struct {
	Registry   string            `json:"registry"`
	Repository string            `json:"repository"`
	Tag        string            `json:"tag,omitempty"`
	Digest     string            `json:"digest,omitempty"` // "sha256:…"; empty: not resolved
	Labels     map[string]string `json:"labels,omitempty"`
}

// The default registry and tag.
const (
	DefaultRegistry = "registry-1.docker.io"
	DefaultTag      = "latest"
)

// ImageKind is the kind of an image. It equals the name of the worker's driver that runs
// it.
type ImageKind string

// The kinds of images.
const (
	HostImage     ImageKind = "process"   // ImageHost: a command of the host
	RegistryImage ImageKind = "container" // of a registry: pulled, and unpacked
	PollerImage   ImageKind = "pull"      // ImagePull: a job that a poller runs
)

// KindOfImage returns the kind of an image by its name: RegistryImage for all except
// ImageHost and ImagePull.
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

// ParseImageRef parses an image's name. Names without a registry belong to the Docker
// Hub. The images "host" and "pull" have no registry, so a client that joins
// registry/repository:tag sends "/host:latest".
func ParseImageRef(image string) ImageRef {
	if KindOfImage(image) != RegistryImage {
		return ImageRef{Repository: image, Tag: DefaultTag}
	}
	name, digest, _ := strings.Cut(image, "@")
	ref := ImageRef{Registry: DefaultRegistry, Repository: name, Digest: digest}
	// The part before the first slash is a registry when it looks like a host.
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

// Image describes an image on a worker, or one that is being pulled.
type Image struct {
	Ref    ImageRef      `json:"ref"`              // with its digest: the manifest of the worker's platform is found by it
	Bytes  int64         `json:"bytes"`            // compressed, of all its layers and its config
	Disk   int64         `json:"disk,omitempty"`   // bytes that it takes on the worker's disk; layers that others have too count in each
	Pull   *PullProgress `json:"pull,omitempty"`   // nil: it is complete
	UsedAt time.Time     `json:"used_at,omitzero"` // when a machine was last started from it, or it was pulled
	InUse  bool          `json:"in_use,omitempty"` // a machine has it; it is not evicted
}

// PullProgress is the progress of a pull.
type PullProgress struct {
	Status string `json:"status"`          // "resolving", "pulling", "unpacking", "done", "failed"
	Bytes  int64  `json:"bytes"`           // here already
	Total  int64  `json:"total"`           // 0: not known yet
	Code   Code   `json:"code,omitempty"`  // of one that failed
	Error  string `json:"error,omitempty"` // likewise: why
}
