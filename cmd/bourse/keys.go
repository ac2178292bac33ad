package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/enroll"
	"github.com/bourse-dev/bourse/machinesapi"
)

// shareGossipKeys makes the file of gossip keys replaceable by brokers, if servers have
// certificates. Without them, others could replace it, too.
func (s *server) shareGossipKeys(keys *admission.Live[[][]byte]) {
	if s.creds == nil {
		return
	}
	s.shared[machinesapi.KeyGossip] = &enroll.KeyFile{
		Path: keys.Files()[0], Look: keys.Look, New: admission.NewGossipKey,
		InUse: func() []string { return admission.GossipKeyIDs(keys.Get()) },
		IDs: func(text []byte) ([]string, error) {
			keys, err := admission.ParseGossipKeys(text)
			return admission.GossipKeyIDs(keys), err
		},
	}
}

// sharePaths adds the paths at which brokers replace shared keys.
func (s *server) sharePaths(mux *http.ServeMux) {
	if s.creds == nil {
		return
	}
	brokersOnly := func(h http.Handler) http.Handler {
		return direct.Handler(s.self.ID, admission.Require(h, bourse.RoleBroker))
	}
	mux.Handle("POST "+enroll.PathKeys, brokersOnly(enroll.KeysHandler(s.shared)))
	if s.self.Role == bourse.RoleBroker {
		mux.Handle("POST "+enroll.PathRotate, brokersOnly(enroll.RotateHandler(s.rotateHere)))
	}
}

// openRotations makes a broker able to rotate its shared keys.
func (s *server) openRotations() {
	for key, file := range s.shared {
		s.rotations[key] = &enroll.Rotation{Self: s.self, Own: file, Holders: s.others, Send: s.sendKeys(key)}
	}
}

// others returns the cluster's other servers. Brokers and proxies are known only while
// they run.
func (s *server) others() []enroll.Holder {
	var all []enroll.Holder
	for _, m := range s.members() {
		if m.ID != s.self.ID {
			all = append(all, enroll.Holder{Member: m})
		}
	}
	_, absent := s.replica.directory.All()
	for _, a := range absent {
		running := slices.ContainsFunc(all, func(h enroll.Holder) bool { return h.Member.ID == a.ID })
		if !a.Removed && !running {
			all = append(all, enroll.Holder{Member: a.Member, Down: true})
		}
	}
	return all
}

// sendKeys returns a function that gives a server the text of a key file.
func (s *server) sendKeys(key machinesapi.SharedKey) func(context.Context, bourse.Member, []byte) (enroll.KeyReply, error) {
	return func(ctx context.Context, to bourse.Member, text []byte) (enroll.KeyReply, error) {
		var reply enroll.KeyReply
		err := s.post(ctx, to, enroll.PathKeys, enroll.KeyRequest{Key: key, Text: text}, &reply)
		return reply, err
	}
}

// post sends in to another server as JSON, and decodes the reply into out.
func (s *server) post(ctx context.Context, to bourse.Member, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return bourse.Errorf(bourse.CodeInternal, "encode the request: %w", err)
	}
	resp, err := s.wire.Call(ctx, to, &http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: path}, Header: http.Header{},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return enroll.ReadReply(to.ID, resp, out)
}

// rotate carries out the next step of a key's rotation, at the broker with the lowest ID, so that
// only one broker at a time rotates a key.
func (s *server) rotate(ctx context.Context, key machinesapi.SharedKey, start bool) (machinesapi.Rotation, error) {
	first := s.self
	for _, m := range s.members() {
		if m.Role == bourse.RoleBroker && cmp.Less(m.ID, first.ID) {
			first = m
		}
	}
	in := enroll.RotateRequest{Key: key, Start: start}
	if first.ID == s.self.ID {
		return s.rotateHere(ctx, in)
	}
	var out machinesapi.Rotation
	err := s.post(ctx, first, enroll.PathRotate, in, &out)
	return out, err
}

func (s *server) rotateHere(ctx context.Context, in enroll.RotateRequest) (machinesapi.Rotation, error) {
	r := s.rotations[in.Key]
	if r == nil {
		return machinesapi.Rotation{}, bourse.Errorf(bourse.CodeFailedPrecondition, "broker %s has no file with a %s key: --credentials names its directory", s.self.ID, in.Key)
	}
	return r.Step(ctx, in.Start)
}
