package enroll

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/machinesapi"
)

// The paths at which servers exchange keys. Only brokers may send requests to PathKeys and PathRotate, and only
// workers to PathAppKeys.
const (
	PathKeys    = "/cluster/keys"     // POST a [KeyRequest]; get a [KeyReply]
	PathRotate  = "/cluster/rotate"   // POST a [RotateRequest] to the broker that rotates keys; get a machinesapi.Rotation
	PathAppKeys = "/cluster/app-keys" // POST an [AppKeysRequest] to a broker; get an [AppKeysReply]
)

// AppKeysRequest is a worker's request for the keys of the app that owns one of its machines.
type AppKeysRequest struct {
	Machine bourse.MachineID `json:"machine"`
}

// AppKeysReply contains the keys as bytes, because bourse.AppKeys encodes only a placeholder in JSON.
type AppKeysReply struct {
	Keys []byte `json:"keys"`
}

// AppKeysHandler serves PathAppKeys. Only workers may have access to it. keysOf receives the calling worker's ID and
// the machine's ID. It must return the keys of the machine's app, or an error if the machine is not on that worker.
func AppKeysHandler(keysOf func(context.Context, bourse.WorkerID, bourse.MachineID) (bourse.AppKeys, error)) http.Handler {
	return handler(func(r *http.Request) (any, error) {
		in, err := decode[AppKeysRequest](r)
		if err != nil {
			return nil, err
		}
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			return nil, bourse.Errorf(bourse.CodeUnauthorized, "the request needs a client certificate")
		}
		who, err := admission.IdentityOf(r.TLS.PeerCertificates[0])
		if err != nil {
			return nil, err
		}
		keys, err := keysOf(r.Context(), who.ID, in.Machine)
		return AppKeysReply{Keys: keys}, err
	})
}

// KeyRequest sends a server the text of a key file.
type KeyRequest struct {
	Key    machinesapi.SharedKey `json:"key"`
	Text   []byte                `json:"text,omitempty"`   // if empty, the server's keys do not change
	Issuer []byte                `json:"issuer,omitempty"` // for brokers: an issuer of the first CA in Text
}

// KeyReply contains the IDs of the keys that the server uses now. The first one encrypts.
type KeyReply struct {
	Keys    []string `json:"keys"`
	Number  int      `json:"number"`            // number of the last step that the server has completed
	Signers [][]byte `json:"signers,omitempty"` // if the key is a CA: the certificates, in DER, whose keys the server has used for signatures
}

// RotateRequest asks a broker for the next step of a rotation.
type RotateRequest struct {
	Key machinesapi.SharedKey `json:"key"`
	machinesapi.Rotate
}

// KeysHandler serves PathKeys. Only brokers may have access to it. files contains the server's key files.
func KeysHandler(files map[machinesapi.SharedKey]*KeyFile) http.Handler {
	return handlerUpTo(maxKeys, func(r *http.Request) (any, error) {
		in, err := decode[KeyRequest](r)
		if err != nil {
			return nil, err
		}
		f := files[in.Key]
		if f == nil {
			return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "this server has no %s key", bourse.Quoted(string(in.Key)))
		}
		if len(in.Text) == 0 {
			return f.Report(), nil
		}
		return f.Set(r.Context(), &in)
	})
}

// RotateHandler serves PathRotate. Only brokers may have access to it.
func RotateHandler(rotate func(context.Context, RotateRequest) (machinesapi.Rotation, error)) http.Handler {
	return handler(func(r *http.Request) (any, error) {
		in, err := decode[RotateRequest](r)
		if err != nil {
			return nil, err
		}
		return rotate(r.Context(), in)
	})
}

func decode[T any](r *http.Request) (in T, err error) {
	data, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(data, &in)
	}
	if err != nil {
		err = bourse.Errorf(bourse.CodeInvalid, "decode the request: %w", err)
	}
	return in, err
}

// ReadReply decodes a server's reply to a request for PathKeys, PathRotate or PathAppKeys. Errors: those that the
// server returns.
func ReadReply(from bourse.WorkerID, resp *http.Response, into any) error {
	data, err := readReply(string(from), resp)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return bourse.Errorf(bourse.CodeInternal, "decode the reply from %s: %w", from, err)
	}
	return nil
}

// KeyServer is a server, other than this broker, that has the key.
type KeyServer struct {
	Member bourse.Member
	Down   bool // the server is not a member at present
}

// Rotation replaces a key that several servers share. It proceeds in steps, so that all servers can decrypt each
// other's messages at any time. The broker's own key file records the current step, so an interrupted rotation can
// be resumed. Only one broker of a cluster may rotate a key at a time.
type Rotation struct {
	Self    bourse.Member // this broker
	Own     *KeyFile
	Servers func() []KeyServer // all other servers that have the key
	// Send sends a request to a server's PathKeys, and returns the reply.
	Send func(ctx context.Context, to bourse.Member, in *KeyRequest) (KeyReply, error)
	// Signers returns the certificates, in PEM, that must remain valid for signatures after all CAs except ca have been
	// removed. replied contains the Signers of all servers' replies. Signers is nil unless the shared key is a CA.
	Signers func(ctx context.Context, ca []byte, replied [][]byte) ([]string, error)

	mu sync.Mutex // locked during a step
}

// Limits for one step.
const (
	sendTimeout     = 10 * time.Second // for one server
	sendConcurrency = 16               // maximum number of concurrent requests
	maxKeys         = 4 << 20          // maximum size of a request with keys, in bytes
)

// Step carries out the next step of the rotation. If in.Start is set, no rotation is in progress, and all servers
// answer, it starts one. Errors: conflict if a rotation to another CA has begun.
func (r *Rotation) Step(ctx context.Context, in machinesapi.Rotate) (machinesapi.Rotation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text, err := os.ReadFile(r.Own.Path)
	if err != nil {
		return machinesapi.Rotation{}, bourse.Errorf(bourse.CodeUnavailable, "read the keys: %w", err)
	}
	keys, err := parseRing(text)
	if err != nil {
		return machinesapi.Rotation{}, err
	}
	started, wanted := false, strings.TrimSpace(in.CA)
	switch {
	case keys.step() == machinesapi.RotationRemove && in.Start && (wanted == "" || wanted != keys.keys[0]):
		out, highest, differ := r.check(ctx, keys.number)
		if !done(&out) {
			return out, nil
		}
		if !differ { // otherwise, the last step of an earlier rotation was interrupted
			key := []byte(wanted)
			if wanted == "" {
				key = r.Own.New()
			}
			keys, started = keys.with(key, highest), true
		}
	case wanted != "" && !slices.Contains(keys.keys, wanted):
		return machinesapi.Rotation{}, bourse.Errorf(bourse.CodeConflict, "a rotation to another CA has begun: complete it first")
	}
	out, signers, err := r.distribute(ctx, keys, in.Issuer)
	out.Started = started
	if err != nil || !done(&out) {
		return out, err
	}
	if keys.step() == machinesapi.RotationRemove {
		out.Done = true
		return out, nil
	}
	if keys.step() == machinesapi.RotationUse && in.KeepOld {
		return out, nil
	}
	next := keys.next()
	if next.step() == machinesapi.RotationRemove && r.Signers != nil {
		if next.signers, err = r.Signers(ctx, []byte(next.keys[0]), signers); err != nil {
			return out, err
		}
	}
	_, err = r.Own.Set(ctx, &KeyRequest{Text: next.text(), Issuer: []byte(in.Issuer)})
	if bourse.CodeOf(err) == bourse.CodeFailedPrecondition {
		out.Blocked, err = bourse.MessageOf(err), nil
	}
	return out, err
}

// done reports whether all servers have completed the step, according to its result.
func done(r *machinesapi.Rotation) bool {
	return !slices.ContainsFunc(r.Servers, func(s machinesapi.RotationServer) bool { return !s.OK })
}

// check asks all servers which keys they use. number is this broker's step number. highest is the highest step number
// of any server, including this broker. differ reports whether any server's keys differ from this broker's keys.
func (r *Rotation) check(ctx context.Context, number int) (out machinesapi.Rotation, highest int, differ bool) {
	highest = number
	own := r.Own.InUse()
	var mu sync.Mutex
	out = r.each(ctx, machinesapi.RotationCheck, &KeyRequest{}, func(has KeyReply) error {
		mu.Lock()
		defer mu.Unlock()
		highest = max(highest, has.Number)
		differ = differ || !slices.Equal(has.Keys, own)
		return nil
	})
	return out, highest, differ
}

// distribute sends the same key file to all servers. It returns the result of the step, and the Signers of all replies.
func (r *Rotation) distribute(ctx context.Context, keys ring, issuer string) (machinesapi.Rotation, [][]byte, error) {
	in := &KeyRequest{Text: keys.text(), Issuer: []byte(issuer)}
	want, err := r.Own.Set(ctx, in)
	if err != nil {
		return machinesapi.Rotation{}, nil, err
	}
	var mu sync.Mutex
	signers := want.Signers
	out := r.each(ctx, keys.step(), in, func(has KeyReply) error {
		if !slices.Equal(has.Keys, want.Keys) {
			return bourse.Errorf(bourse.CodeConflict, "the server did not adopt the keys")
		}
		mu.Lock()
		defer mu.Unlock()
		signers = append(signers, has.Signers...)
		return nil
	})
	return out, signers, nil
}

// each sends a request to all other servers, and passes their replies to check. It starts with the brokers, because
// they issue the other servers' certificates.
func (r *Rotation) each(ctx context.Context, step machinesapi.RotationStep, in *KeyRequest, check func(KeyReply) error) machinesapi.Rotation {
	holders := r.Servers()
	out := machinesapi.Rotation{Step: step, Servers: make([]machinesapi.RotationServer, len(holders), len(holders)+1)}
	for _, brokers := range []bool{true, false} {
		var sending errgroup.Group
		sending.SetLimit(sendConcurrency)
		for i, h := range holders {
			if brokers != (h.Member.Role == bourse.RoleBroker) {
				continue
			}
			sending.Go(func() error {
				out.Servers[i] = r.sendTo(ctx, &h, *in, check)
				return nil
			})
		}
		_ = sending.Wait() // the functions never return an error
	}
	out.Servers = append(out.Servers, machinesapi.RotationServer{ID: r.Self.ID, Role: r.Self.Role, OK: true})
	slices.SortFunc(out.Servers, func(a, b machinesapi.RotationServer) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// sendTo sends a request to one server, and reports whether the server has completed the step.
func (r *Rotation) sendTo(ctx context.Context, h *KeyServer, in KeyRequest, check func(KeyReply) error) machinesapi.RotationServer {
	s := machinesapi.RotationServer{ID: h.Member.ID, Role: h.Member.Role}
	if h.Down {
		s.Error = fmt.Sprintf("the %s is down", h.Member.Role)
		return s
	}
	if h.Member.Role != bourse.RoleBroker {
		in.Issuer = nil
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	has, err := r.Send(ctx, h.Member, &in)
	if err == nil {
		err = check(has)
	}
	if s.OK = err == nil; !s.OK {
		s.Error = bourse.MessageOf(err)
	}
	return s
}
