package enroll

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// maxReply limits the size of a reply, in bytes.
const maxReply = 1 << 20

// Join joins a cluster with an invitation. It sends the secret only to a broker whose certificate
// was issued by the CA in the invitation. Errors: unavailable if no broker answers; forbidden if a
// server without such a certificate answers; failed_precondition if this host's clock is wrong; and
// the errors that the broker returns.
func Join(ctx context.Context, v *Invitation, r Request) (*Reply, error) {
	r.ID, r.Secret = v.ID, v.Secret
	var failed []error
	for _, address := range v.Addresses {
		reply, err := joinAt(ctx, address, v.CA, &r)
		if err == nil || bourse.CodeOf(err) != bourse.CodeUnavailable {
			return reply, err
		}
		failed = append(failed, err)
	}
	return nil, bourse.Errorf(bourse.CodeUnavailable, "no broker could be reached: %w", errors.Join(failed...))
}

func joinAt(ctx context.Context, address string, want Fingerprint, r *Request) (*Reply, error) {
	// Anyone may have sent this bundle, so its certificates are compared with the
	// fingerprint.
	bundle, err := get(ctx, address, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}) //nolint:gosec // see above
	if err != nil {
		return nil, err
	}
	ca := want.find(bundle)
	if ca == nil {
		return nil, bourse.Errorf(bourse.CodeForbidden, "%s belongs to another cluster than the join token", address)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	var reply Reply
	if err := exchange(ctx, http.MethodPost, address, PathJoin, admission.AnyServer(pool, bourse.RoleBroker), r, &reply); err != nil {
		return nil, err
	}
	if want.find(reply.CA) == nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "%s sent a CA that is not the cluster's", address)
	}
	return &reply, nil
}

func get(ctx context.Context, address string, with *tls.Config) ([]byte, error) {
	return call(ctx, http.MethodGet, address, PathCA, with, nil)
}

// exchange sends in as JSON, and decodes the JSON reply into out.
func exchange(ctx context.Context, method, address, path string, with *tls.Config, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return bourse.Errorf(bourse.CodeInternal, "encode the request: %w", err)
	}
	data, err := call(ctx, method, address, path, with, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, out); err != nil {
		return bourse.Errorf(bourse.CodeInternal, "decode the reply from %s: %w", address, err)
	}
	return nil
}

// callTimeout limits the duration of one call.
const callTimeout = 15 * time.Second

func call(ctx context.Context, method, address, path string, with *tls.Config, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "https://"+address+path, bytes.NewReader(body))
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%s: %w", address, err)
	}
	transport := &http.Transport{TLSClientConfig: with, Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, errUnreachable(address, err)
	}
	defer resp.Body.Close()
	return readReply(address, resp)
}

// readReply returns a reply's body or, if the status is not 200, the error in the body.
func readReply(from string, resp *http.Response) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "read the reply from %s: %w", from, err)
	}
	if resp.StatusCode == http.StatusOK {
		return data, nil
	}
	var f failure
	if json.Unmarshal(data, &f) != nil || f.Error == "" {
		return nil, bourse.Errorf(bourse.CodeInternal, "%s replied with status %d", from, resp.StatusCode)
	}
	return nil, bourse.Errorf(f.Code, "%s", f.Error)
}

// errUnreachable returns the error for a failed connection. If the server's certificate has expired
// or is not valid yet, the message suggests setting this host's clock, because a wrong clock is the
// usual reason.
func errUnreachable(address string, err error) error {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		leaf := invalid.Cert
		return bourse.Errorf(bourse.CodeFailedPrecondition, "the certificate of %s is valid from %s to %s, but this host's clock shows %s: set the clock",
			address, leaf.NotBefore.UTC().Format(time.DateTime), leaf.NotAfter.UTC().Format(time.DateTime), time.Now().UTC().Format(time.DateTime))
	}
	if _, untrusted := errors.AsType[x509.UnknownAuthorityError](err); untrusted {
		return bourse.Errorf(bourse.CodeForbidden, "%s has no certificate from the cluster's CA: %w", address, err)
	}
	return bourse.Errorf(bourse.CodeUnavailable, "%w", err)
}

// Renewal contains a server's new key and, once the broker has replied, the certificate for it.
type Renewal struct {
	Request []byte // certificate request in DER, the body of a request to PathRenew

	CA  []byte // the CA's certificates in PEM, from the reply
	PEM []byte // the new certificate and its key, from the reply

	key []byte
}

// NewRenewal creates a renewal with a new key.
func NewRenewal() (*Renewal, error) {
	key, private, err := admission.NewKey()
	if err != nil {
		return nil, err
	}
	request, err := NewRequest(key)
	return &Renewal{Request: request, key: private}, err
}

// NewRequest creates a certificate request in DER for a server's key. The request
// contains only the key: the broker determines everything else in the certificate.
func NewRequest(key *ecdsa.PrivateKey) ([]byte, error) {
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "create a certificate request: %w", err)
	}
	return request, nil
}

// Read reads the broker's reply to the request, and sets CA and PEM. Errors: those that the broker
// returns; internal if the reply is unusable.
func (r *Renewal) Read(from string, resp *http.Response) error {
	data, err := readReply(from, resp)
	if err != nil {
		return err
	}
	var out Renewed
	if err := json.Unmarshal(data, &out); err != nil {
		return bourse.Errorf(bourse.CodeInternal, "decode the reply from %s: %w", from, err)
	}
	return r.accept(out.CA, out.Certificate)
}

// accept stores the CA and the certificate, after checking that the certificate belongs
// to the key.
func (r *Renewal) accept(ca, cert []byte) error {
	if _, err := admission.NewCredentials(ca, admission.Pair{Cert: cert, Key: r.key}); err != nil {
		return bourse.Errorf(bourse.CodeInternal, "the broker sent an unusable certificate: %w", err)
	}
	r.CA, r.PEM = ca, slices.Concat(cert, r.key)
	return nil
}
