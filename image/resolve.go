package image

import (
	"context"
	"fmt"

	"github.com/bourse-dev/bourse"
)

// Resolve finds out which image a name means now and gives it with its digest:
// of an index where the registry has one. A name with a digest means that one,
// and no registry is asked. A tag's registry is asked with one request for all
// who want to know at the moment, for at most Config.ResolveWithin; when it
// cannot be reached, what the tag meant last is given, if that image is here.
//
// CodeInvalid: no name of an image. CodeNotFound: the registry does not have it,
// or does not show it to this worker. CodeUnavailable: the registry cannot be
// reached.
func (s *Store) Resolve(ctx context.Context, name string) (bourse.ImageRef, error) {
	ref, err := parseName(name)
	if err != nil {
		return bourse.ImageRef{}, err
	}
	if ref.Digest != "" {
		return s.labelled(ref), nil
	}
	flight := s.resolving.DoChan(tagName(ref), func() (any, error) {
		// Not of the first one to ask: the others may stay longer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.ResolveWithin)
		defer cancel()
		return s.ask(s.within(ctx), ref)
	})
	select {
	case <-ctx.Done():
		return bourse.ImageRef{}, fmt.Errorf("image %s: %w", name, ctx.Err())
	case answer := <-flight:
		if answer.Err == nil {
			ref.Digest = answer.Val.(string)
			return s.labelled(ref), nil
		}
		err = coded(answer.Err, name)
	}
	if final(err) {
		return bourse.ImageRef{}, err
	}
	if local := s.lastKnown(ctx, ref); local != "" {
		s.config.Log.Warn("registry not reached, using the image that is here", "image", name, "digest", local, "err", err)
		ref.Digest = local
		return s.labelled(ref), nil
	}
	return bourse.ImageRef{}, err
}

// labelled adds the labels of an image that is here.
func (s *Store) labelled(ref bourse.ImageRef) bourse.ImageRef {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.memory.catalogue.find(ref); r != nil {
		ref.Labels = r.image().Ref.Labels
	}
	return ref
}

// lastKnown gives the digest of the image here that a tag meant last.
func (s *Store) lastKnown(ctx context.Context, ref bourse.ImageRef) string {
	s.mu.Lock()
	loaded := s.memory.loaded
	s.mu.Unlock()
	if !loaded { // Run has just begun
		ctx, c, err := s.containerd(ctx)
		if err == nil {
			err = s.load(ctx, c)
		}
		if err != nil {
			s.config.Log.Debug("images not read", "image", ref.String(), "err", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.memory.catalogue.find(ref); r != nil {
		return r.ref.Digest
	}
	if r, ok := s.memory.catalogue.records[s.memory.catalogue.tags[tagName(ref)]]; ok {
		return r.ref.Digest // what it means now was heard, but is not here
	}
	return ""
}

// ask asks the registry what a tag means, and remembers it.
func (s *Store) ask(ctx context.Context, ref bourse.ImageRef) (string, error) {
	_, desc, err := s.resolver.Resolve(ctx, tagName(ref))
	if err != nil {
		return "", &registryError{err}
	}
	ref.Digest = desc.Digest.String()
	s.mu.Lock()
	s.memory.catalogue.hear(tagName(ref), ref.Digest)
	r, here := s.memory.catalogue.records[recordName(ref)]
	if here {
		s.memory.catalogue.setTag(r, ref.Tag)
	}
	_, known := s.memory.catalogue.known[ref.Digest]
	s.mu.Unlock()
	if !here && !known {
		// The pull that follows needs the manifest anyway; without it only the
		// next quotes know less.
		if _, _, err := s.look(ctx, nil, ref, desc); err != nil {
			s.config.Log.Debug("manifest not read", "image", ref.String(), "err", err)
		}
	}
	return ref.Digest, nil
}
