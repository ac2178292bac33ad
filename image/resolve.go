package image

import (
	"context"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
)

// Resolve returns the image that a name means now, if its registry shows it
// to an organisation: with its own credentials where it has some for this
// registry, else with the shared ones. The result is the name with its digest: of
// an index where the registry has one. A tag's registry is asked with one request
// for all callers that wait for the same at the moment, for at most
// Config.ResolveWithin, that of a digest again when its last answer is older than
// Config.Recheck. When the registry cannot be reached, what the name meant last
// is returned, if that image is here and was shown to the organisation in the last week.
//
// CodeInvalid: no name of an image. CodeNotFound: the registry does not have it,
// or does not show it to this organisation. CodeUnavailable: the registry cannot
// be reached.
func (s *Store) Resolve(ctx context.Context, org, name string) (bourse.ImageRef, error) {
	ref, err := parseName(name)
	if err != nil {
		return bourse.ImageRef{}, err
	}
	who := s.hosts.askerNow(org, ref.Registry)
	if ref.Digest != "" && s.wasShown(ref, who, s.config.Recheck) {
		return s.labelled(ref), nil
	}
	flight := s.resolving.DoChan(string(who)+" "+ref.String(), func() (any, error) {
		// Not of the first one to ask: the others may stay longer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.ResolveWithin)
		defer cancel()
		return s.ask(s.within(ctx), who, ref)
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
		s.mu.Lock()
		s.memory.catalogue.hide(ref, who)
		s.mu.Unlock()
		return bourse.ImageRef{}, err
	}
	if local := s.lastKnown(ctx, who, ref); local != "" {
		s.config.Log.Warn("registry not reached, using the image that is here", "image", name, "digest", local, "err", err)
		ref.Digest = local
		return s.labelled(ref), nil
	}
	return bourse.ImageRef{}, err
}

// wasShown reports whether the image of a digest was shown to an asker within a
// time.
func (s *Store) wasShown(ref bourse.ImageRef, who asker, within time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory.catalogue.wasShown(recordName(ref), who, within, time.Now())
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

// lastKnown returns the digest of the image here that a name meant last, if it was
// shown to an asker.
func (s *Store) lastKnown(ctx context.Context, who asker, ref bourse.ImageRef) string {
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
	r := s.memory.catalogue.find(ref)
	if r == nil && ref.Digest == "" {
		r = s.memory.catalogue.records[s.memory.catalogue.tags[tagName(ref)]] // its present digest is known, but is not here
	}
	if r == nil || !s.memory.catalogue.wasShown(r.name, who, shownFor, time.Now()) {
		return ""
	}
	return r.ref.Digest
}

// ask asks the registry what a name means to an asker, and records it.
func (s *Store) ask(ctx context.Context, who asker, ref bourse.ImageRef) (string, error) {
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
	s.memory.catalogue.show(recordName(ref), who, time.Now())
	if name == tagName(ref) {
		s.memory.catalogue.hear(name, ref.Digest)
	}
	r, here := s.memory.catalogue.records[recordName(ref)]
	if here && name == tagName(ref) {
		s.memory.catalogue.setTag(r, ref.Tag)
	}
	_, known := s.memory.catalogue.known[recordName(ref)]
	s.mu.Unlock()
	if !here && !known && name == tagName(ref) {
		// The pull that follows needs the manifest anyway; without it only the
		// next quotes know less.
		if _, _, err := s.look(ctx, nil, who, ref, desc); err != nil {
			s.config.Log.Debug("manifest not read", "image", ref.String(), "err", err)
		}
	}
	return ref.Digest, nil
}
