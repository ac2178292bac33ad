package enroll

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// Enrollment lets a broker admit hosts to the cluster and renew certificates.
type Enrollment struct {
	Issuer    func() *admission.CA // the CA that signs certificates
	Ledger    *Ledger
	Region    bourse.Region                                  // the broker's region
	CA        func() []byte                                  // the cluster's CA in PEM, which may consist of several certificates
	NameInUse func(name bourse.WorkerID) bool                // reports whether this name conflicts with the name of a server in the cluster
	Refused   func(name bourse.WorkerID, now time.Time) bool // reports whether a certificate issued to this server now would be refused
	Common    func(roles []bourse.Role) (Reply, error)       // returns the reply for hosts that run servers with these roles, without certificates
	Log       *slog.Logger
	Now       func() time.Time
}

// maxBody limits the size of a request's body, in bytes.
const maxBody = 64 << 10

// CAHandler serves PathCA to anyone.
func (d *Enrollment) CAHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-pem-file")
		_, _ = w.Write(d.CA()) // the client may have disconnected
	})
}

// JoinHandler serves PathJoin to anyone who has an invitation.
func (d *Enrollment) JoinHandler() http.Handler {
	return handler(func(r *http.Request) (any, error) {
		in, err := decode[Request](r)
		if err != nil {
			return nil, err
		}
		reply, err := d.join(&in)
		client, _, _ := net.SplitHostPort(r.RemoteAddr)
		log := d.Log.With("host", in.Host, "join_token", in.ID, "client", client)
		if err != nil {
			if bourse.CodeOf(err) != bourse.CodeUnauthorized { // anyone can cause this error, often enough to fill the log
				log.Warn("host was not admitted", "err", err)
			}
			return nil, err
		}
		log.Info("host admitted", "region", in.Region)
		return reply, nil
	})
}

func (d *Enrollment) join(in *Request) (*Reply, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	if err := d.Ledger.Verify(in.ID, in.Secret); err != nil {
		return nil, err
	}
	now := d.Now()
	roles := make([]bourse.Role, 0, len(in.Servers))
	signed := map[bourse.Role][]byte{}
	for _, s := range in.Servers { // signed first, so that an invalid request does not use up the invitation
		who := admission.Identity{ID: ServerName(in.Host, s.Role), Role: s.Role}
		if d.Refused(who.ID, now) {
			return nil, bourse.Errorf(bourse.CodeUnavailable, "%s has just been removed from the cluster: join again in a second", who.ID)
		}
		var hosts []string
		if s.Role == bourse.RoleBroker && in.Address != "" { // clients trust every certificate that has a broker's address
			hosts = []string{in.Address}
		}
		cert, err := d.Issuer().Sign(s.Request, who, hosts, now)
		if err != nil {
			return nil, err
		}
		roles, signed[s.Role] = append(roles, s.Role), cert
	}
	reply, err := d.Common(roles)
	if err != nil {
		return nil, err
	}
	terms, err := d.Ledger.Use(in.ID, in.Secret, in, now, d.NameInUse)
	if err != nil {
		return nil, err
	}
	reply.CA, reply.Certificates, reply.Region = d.CA(), signed, cmp.Or(in.Region, terms.Region, d.Region)
	return &reply, nil
}

// RenewHandler serves PathRenew. It must only be accessible to servers of the cluster.
func (d *Enrollment) RenewHandler() http.Handler {
	return handler(func(r *http.Request) (any, error) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			return nil, bourse.Errorf(bourse.CodeUnauthorized, "the request needs the current certificate as its client certificate")
		}
		current := r.TLS.PeerCertificates[0]
		who, err := admission.IdentityOf(current)
		if err != nil {
			return nil, err
		}
		request, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "read the request: %w", err)
		}
		cert, err := d.Issuer().Sign(request, who, hostsOf(current, who), d.Now())
		if err != nil {
			return nil, err
		}
		d.Log.Info("certificate renewed", "server", who.ID, "role", who.Role)
		return &Renewed{CA: d.CA(), Certificate: cert}, nil
	})
}

// failure is the body of an error reply.
type failure struct {
	Error string      `json:"error"`
	Code  bourse.Code `json:"code"`
}

// handler returns a handler that calls fn and serves the result as JSON.
func handler(fn func(*http.Request) (any, error)) http.Handler { return handlerUpTo(maxBody, fn) }

// handlerUpTo is like handler, but limits the request's body to limit bytes instead of maxBody.
func handlerUpTo(limit int64, fn func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		out, err := fn(r)
		status := http.StatusOK
		if err != nil {
			code := bourse.CodeOf(err)
			if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
				code = bourse.CodeInvalid
			}
			status, out = code.Status(), failure{bourse.MessageOf(err), code}
		}
		data, err := json.Marshal(out)
		if err != nil {
			http.Error(w, "encode the reply", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(data) // the client may have disconnected
	})
}
