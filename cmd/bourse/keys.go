package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/enroll"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/machinesapi"
)

// shareGossipKeys lets brokers replace the file that contains the gossip keys, if servers
// have certificates. Without certificates, anyone could replace the file.
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

// shareSecretsKeys lets other brokers replace the file that contains this broker's secrets keys,
// if servers have certificates.
func (s *server) shareSecretsKeys(keys *admission.Live[*seal.Keys]) {
	if s.creds == nil {
		return
	}
	s.shared[machinesapi.KeySecrets] = &enroll.KeyFile{
		Path: keys.Files()[0], Look: keys.Look, New: seal.Generate,
		InUse: func() []string { return keys.Get().IDs() },
		IDs: func(text []byte) ([]string, error) {
			keys, err := seal.Read(text)
			if err != nil {
				return nil, err
			}
			return keys.IDs(), nil
		},
		CheckOldKey: func() error { return s.checkOldKey(keys.Get()) },
	}
}

// oldKeyTimeout limits how long checkOldKey may search for secrets that need the old key.
const oldKeyTimeout = 5 * time.Second

// checkOldKey returns failed_precondition if the view contains secrets that are not encrypted
// with the first key.
func (s *server) checkOldKey(keys *seal.Keys) error {
	ctx, cancel := context.WithTimeout(context.Background(), oldKeyTimeout)
	defer cancel()
	all, err := s.replica.Apps(ctx)
	if err != nil {
		return err
	}
	secrets, names := 0, []string{}
	for _, app := range all {
		list, err := s.replica.Secrets(ctx, app.ID)
		if err != nil {
			return err
		}
		old := slices.DeleteFunc(list, func(x seal.Secret) bool { return keys.Latest(app.ID, x.Sealed) })
		if app.DeletedAt == nil && len(old) > 0 {
			secrets, names = secrets+len(old), append(names, string(app.Name))
		}
	}
	if secrets == 0 {
		return nil
	}
	const most = 5
	apps, more := len(names), ""
	if n := len(names) - most; n > 0 {
		names, more = names[:most], fmt.Sprintf(" and %d more", n)
	}
	return bourse.Errorf(bourse.CodeFailedPrecondition, "the old key still encrypts %s of %s: %s%s",
		cli.Count(secrets, "secret"), cli.Count(apps, "app"), strings.Join(names, ", "), more)
}

// appKeysOf returns the keys for the secrets of a machine's app. A worker receives keys only for
// machines that brokers placed on it.
func (s *server) appKeysOf(ctx context.Context, worker bourse.WorkerID, id bourse.MachineID) (bourse.AppKeys, error) {
	m, err := s.replica.Machine(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case m == nil:
		return nil, bourse.Errorf(bourse.CodeUnavailable, "machine %s is not in the view of broker %s yet", bourse.Quoted(string(id)), s.self.ID)
	case m.Worker != worker || m.AppID == "" || m.SkipSecrets:
		return nil, bourse.Errorf(bourse.CodeForbidden, "worker %s has no machine %s that receives secrets", worker, bourse.Quoted(string(id)))
	case s.secretsKeys == nil:
		return nil, bourse.Errorf(bourse.CodeUnavailable, "broker %s has no secrets.key", s.self.ID)
	}
	s.log.Info("app keys sent to worker", "worker", worker, "machine", id)
	return s.secretsKeys().OfApp(m.AppID), nil
}

// AppKeys implements machines.SecretsView. It asks the brokers in random order.
func (v workerSecrets) AppKeys(ctx context.Context, machine bourse.MachineID) (bourse.AppKeys, error) {
	s := v.server
	if s.creds == nil {
		return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "servers have no certificates")
	}
	brokers := slices.DeleteFunc(s.members(), func(m bourse.Member) bool { return m.Role != bourse.RoleBroker })
	rand.Shuffle(len(brokers), func(i, j int) { brokers[i], brokers[j] = brokers[j], brokers[i] })
	err := bourse.Errorf(bourse.CodeUnavailable, "no broker is running")
	for _, b := range brokers {
		var reply enroll.AppKeysReply
		if err = s.post(ctx, b, enroll.PathAppKeys, enroll.AppKeysRequest{Machine: machine}, &reply); err == nil {
			return reply.Keys, bourse.AppKeys(reply.Keys).Validate()
		}
	}
	return nil, err
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
		mux.Handle("POST "+enroll.PathAppKeys, direct.Handler(s.self.ID, admission.Require(enroll.AppKeysHandler(s.appKeysOf), bourse.RoleWorker)))
	}
}

// openRotations enables a broker to rotate the shared keys.
func (s *server) openRotations() {
	holders := map[machinesapi.SharedKey]func() []enroll.KeyServer{
		machinesapi.KeyGossip: s.others, machinesapi.KeySecrets: s.otherBrokers, machinesapi.KeyCA: s.others,
	}
	for key, file := range s.shared {
		s.rotations[key] = &enroll.Rotation{Self: s.self, Own: file, Servers: holders[key], Send: s.sendKeys(key)}
	}
	if len(s.deskFiles) == 0 {
		delete(s.rotations, machinesapi.KeyCA)
	} else if r := s.rotations[machinesapi.KeyCA]; r != nil {
		r.Signers = s.signersBesides
	}
}

// others returns the cluster's other servers, including those that are down.
func (s *server) others() []enroll.KeyServer {
	var all []enroll.KeyServer
	for _, m := range s.members() {
		if m.ID != s.self.ID {
			all = append(all, enroll.KeyServer{Member: m})
		}
	}
	down := s.replica.directory.Certified() // Certified also returns running servers, which the loop below skips
	_, absent := s.replica.directory.All()
	for _, a := range absent {
		if !a.Removed {
			down = append(down, a.Member)
		}
	}
	for _, m := range down {
		known := slices.ContainsFunc(all, func(h enroll.KeyServer) bool { return h.Member.ID == m.ID })
		if m.ID != s.self.ID && !known {
			all = append(all, enroll.KeyServer{Member: m, Down: true})
		}
	}
	return all
}

// otherBrokers returns the cluster's other brokers.
func (s *server) otherBrokers() []enroll.KeyServer {
	return slices.DeleteFunc(s.others(), func(h enroll.KeyServer) bool { return h.Member.Role != bourse.RoleBroker })
}

// sendKeys returns a function that sends a key file to another server.
func (s *server) sendKeys(key machinesapi.SharedKey) func(context.Context, bourse.Member, *enroll.KeyRequest) (enroll.KeyReply, error) {
	return func(ctx context.Context, to bourse.Member, in *enroll.KeyRequest) (enroll.KeyReply, error) {
		var reply enroll.KeyReply
		in.Key = key
		err := s.post(ctx, to, enroll.PathKeys, in, &reply)
		return reply, err
	}
}

// post encodes in as JSON, sends it to another server, and decodes the reply into out.
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

// rotate carries out the next step of a key's rotation. If another broker has a lower ID, it passes
// the request to the broker with the lowest ID, so that only one broker at a time rotates a key.
func (s *server) rotate(ctx context.Context, key machinesapi.SharedKey, step machinesapi.Rotate) (machinesapi.Rotation, error) {
	first := s.self
	for _, m := range s.members() {
		if m.Role == bourse.RoleBroker && cmp.Less(m.ID, first.ID) {
			first = m
		}
	}
	in := enroll.RotateRequest{Key: key, Rotate: step}
	if first.ID == s.self.ID {
		return s.rotateHere(ctx, in)
	}
	var out machinesapi.Rotation
	err := s.post(ctx, first, enroll.PathRotate, in, &out)
	return out, err
}

func (s *server) rotateHere(ctx context.Context, in enroll.RotateRequest) (machinesapi.Rotation, error) {
	if !s.replica.directory.Knows() { // the rotation would miss servers that are down
		return machinesapi.Rotation{}, bourse.Errorf(bourse.CodeUnavailable, "broker %s does not know its cluster yet: it has just started, or cannot reach any other server", s.self.ID)
	}
	r := s.rotations[in.Key]
	if in.Key == machinesapi.KeyCA {
		ca, err := admission.CheckIssuer([]byte(in.CA), []byte(in.Issuer))
		switch {
		case err != nil:
			return machinesapi.Rotation{}, err
		case r == nil:
			return machinesapi.Rotation{}, bourse.Errorf(bourse.CodeFailedPrecondition, "broker %s has no issuer.pem: copy the file from another broker, and restart this one", s.self.ID)
		}
		if err := s.checkNATS(ca); err != nil && !in.KeepOld {
			return machinesapi.Rotation{}, err
		}
		in.CA = string(admission.CertPEM(ca))
	}
	if r == nil {
		return machinesapi.Rotation{}, bourse.Errorf(bourse.CodeFailedPrecondition, "broker %s has no file with a %s key in its --credentials directory", s.self.ID, in.Key)
	}
	return r.Step(ctx, in.Rotate)
}
