package image

import (
	"context"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
)

// Resolve returns the image to which a name currently refers, if the registry confirms that the organization may access
// the image. It uses the organization's own credentials for the registry if there are any, and the shared credentials
// otherwise. The result is the name with the digest that the registry returns, which may be the digest of an index. For
// a tag, concurrent callers share one request to the registry, which takes at most Config.ResolveTimeout. For a digest,
// Resolve asks the registry only if the registry's last answer is older than Config.Recheck. If the registry cannot be
// reached, Resolve returns the last known image, provided that it is on this worker and the registry has confirmed the
// organization's access within the last week.
//
// Errors: CodeInvalid if the name is invalid, CodeNotFound if the registry does not have the image or denies the
// organization access to it, CodeUnavailable if the registry cannot be reached.
func (s *Store) Resolve(ctx context.Context, org, name string) (bourse.ImageRef, error) {
	ref, err := parseName(name)
	if err != nil {
		return bourse.ImageRef{}, err
	}
	who := s.hosts.freshTenantOf(org, ref.Registry)
	if ref.Digest != "" && s.hadAccess(ref, who, s.config.Recheck) {
		return s.labeled(ref), nil
	}
	flight := s.resolving.DoChan(string(who)+" "+ref.String(), func() (any, error) {
		// The request does not use the first caller's context, because other callers may wait longer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.ResolveTimeout)
		defer cancel()
		return s.ask(s.within(ctx), who, ref)
	})
	select {
	case <-ctx.Done():
		return bourse.ImageRef{}, fmt.Errorf("image %s: %w", name, ctx.Err())
	case answer := <-flight:
		if answer.Err == nil {
			ref.Digest = answer.Val.(string)
			return s.labeled(ref), nil
		}
		err = withCode(answer.Err, name)
	}
	if isPermanent(err) {
		s.mu.Lock()
		s.memory.catalog.forgetAccess(ref, who)
		s.mu.Unlock()
		return bourse.ImageRef{}, err
	}
	if local := s.lastAccessible(ctx, who, ref); local != "" {
		s.config.Log.Warn("registry unreachable, using the local image", "image", name, "digest", local, "err", err)
		ref.Digest = local
		return s.labeled(ref), nil
	}
	return bourse.ImageRef{}, err
}

// hadAccess reports whether a registry confirmed a tenant's access to an image within the given duration before now.
func (s *Store) hadAccess(ref bourse.ImageRef, who tenant, within time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory.catalog.hadAccess(recordName(ref), who, within, time.Now())
}

// labeled adds the image's labels to ref if the image is on this worker.
func (s *Store) labeled(ref bourse.ImageRef) bourse.ImageRef {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.memory.catalog.find(ref); r != nil {
		ref.Labels = r.image().Ref.Labels
	}
	return ref
}

// lastAccessible returns the digest of the local image to which a name last referred. It returns "" if there is no such
// image or the tenant's access to it was not recently confirmed.
func (s *Store) lastAccessible(ctx context.Context, who tenant, ref bourse.ImageRef) string {
	s.mu.Lock()
	loaded := s.memory.loaded
	s.mu.Unlock()
	if !loaded { // Run has just started and has not read the images yet
		ctx, c, err := s.containerd(ctx)
		if err == nil {
			err = s.load(ctx, c)
		}
		if err != nil {
			s.config.Log.Debug("read images failed", "image", ref.String(), "err", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.memory.catalog.find(ref)
	if r == nil && ref.Digest == "" {
		// The image to which the tag now refers is not on this worker, so use the local image that last had the tag.
		r = s.memory.catalog.records[s.memory.catalog.tags[tagName(ref)]]
	}
	if r == nil || !s.memory.catalog.hadAccess(r.name, who, accessValid, time.Now()) {
		return ""
	}
	return r.ref.Digest
}

// ask asks the registry for the digest of a name on behalf of a tenant, and records the answer.
func (s *Store) ask(ctx context.Context, who tenant, ref bourse.ImageRef) (string, error) {
	name := tagName(ref)
	if ref.Digest != "" {
		name = recordName(ref)
	}
	_, desc, err := s.hosts.resolver(who).Resolve(ctx, name)
	if err != nil {
		return "", &registryError{err}
	}
	if ref.Digest == "" {
		ref.Digest = desc.Digest.String()
	}
	s.mu.Lock()
	s.memory.catalog.recordAccess(recordName(ref), who, time.Now())
	if name == tagName(ref) {
		s.memory.catalog.setDigest(name, ref.Digest)
	}
	r, here := s.memory.catalog.records[recordName(ref)]
	if here && name == tagName(ref) {
		s.memory.catalog.setTag(r, ref.Tag)
	}
	_, known := s.memory.catalog.parts[recordName(ref)]
	s.mu.Unlock()
	if !here && !known && name == tagName(ref) {
		// Read the manifest now, because the next pull needs it anyway, and because it makes quotes more accurate.
		// Errors do not matter here.
		if _, _, err := s.readOutline(ctx, nil, who, ref, desc); err != nil {
			s.config.Log.Debug("read manifest failed", "image", ref.String(), "err", err)
		}
	}
	return ref.Digest, nil
}
