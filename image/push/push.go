package push

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/log"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/semaphore"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/image/credentials"
	"github.com/bourse-dev/bourse/internal/tempdir"
)

// Request is what is pushed where.
type Request struct {
	Archive string // path of a tar file or a directory
	Image   string // a name, tag or digest in the archive; "": the only one there
	Name    string // what it is to be called: registry/repository[:tag], the tag by default "latest"

	Login    credentials.Login // the zero value: those of Config
	Config   string            // path of docker's config.json; "": none. A file that is not there is none
	Insecure bool              // plain HTTP to any registry; to one on loopback it is used always, unless CA is set
	CA       string            // optional PEM file with the authorities that sign the registry's certificate

	Temp     string         // directory for the copy of the archive; "": the system's
	Progress func(Progress) // optional; called one call at a time, and not after Push has returned
}

// Progress is how far a push has come, in bytes. What the registry has already counts as
// sent.
type Progress struct{ Sent, Total int64 }

// tempPrefix begins the names of the directories that archives are copied to.
const tempPrefix = "bourse-push-"

// Push pushes an image and returns its name with its digest: "registry/repository:tag@sha256:…".
// Every part is in the registry before the manifest that names it, and the tag moves last, so
// a push that fails or is canceled leaves the tag as it was; repeated, it sends only the rest.
//
// The archive is checked before anything is sent: it may have 10 000 entries and 64 GiB,
// which must all be in the file, its digests are computed, and manifests of 4 MiB are read.
//
// The error is [bourse.CodeInvalid] for an archive or a name that is wrong, CodeNotFound for
// one that is not there, CodeUnauthorized or CodeForbidden when the registry refuses the
// credentials, CodeUnavailable when it does not answer, CodeCanceled when ctx has ended.
func Push(ctx context.Context, r Request) (string, error) {
	return r.push(ctx, usual)
}

func (r Request) push(ctx context.Context, bound limits) (string, error) {
	ref, err := parse(r.Name)
	if err != nil {
		return "", err
	}
	ctx = quiet(ctx)
	resolver, done, err := r.resolver(ref.Registry)
	if err != nil {
		return "", err
	}
	defer done()
	if _, err := tempdir.RemoveLeft(tempOf(r.Temp), tempPrefix, func(string) error { return nil }); err != nil {
		return "", err
	}
	dir, err := tempdir.Make(tempOf(r.Temp), tempPrefix)
	if err != nil {
		return "", err
	}
	defer func() { _ = dir.Remove() }() // the next push removes it
	from, err := unpack(ctx, r.Archive, dir.Path, bound)
	if err != nil {
		return "", about(r.Archive, err)
	}
	root, err := from.choose(ctx, r.Image)
	if err != nil {
		return "", about(r.Archive, err)
	}
	sizes, err := from.verify(ctx, root, bound)
	if err != nil {
		return "", about(r.Archive, err)
	}
	ref.Digest = root.Digest.String()
	pusher, err := resolver.Pusher(ctx, ref.String())
	if err != nil {
		return "", coded(ctx, err, ref)
	}
	source := newMeter(from, sizes, r.Progress)
	err = remotes.PushContent(ctx, pusher, root, source, semaphore.NewWeighted(atOnce), platforms.All, source.count)
	if err != nil {
		return "", coded(ctx, err, ref)
	}
	return ref.String(), nil
}

// atOnce is how many parts are sent at a time.
const atOnce = 3

func tempOf(dir string) string {
	if dir == "" {
		return os.TempDir()
	}
	return dir
}

// parse takes the name that an image is to have apart.
func parse(name string) (bourse.ImageRef, error) {
	ref := bourse.ParseImageRef(name)
	switch {
	case ref.Registry == "":
		return ref, bourse.Errorf(bourse.CodeInvalid, "image %s is not in a registry", bourse.Quoted(name))
	case ref.Digest != "":
		return ref, bourse.Errorf(bourse.CodeInvalid, "image %s: the digest follows from the archive; name it without", bourse.Quoted(name))
	}
	if _, err := reference.ParseNamed(ref.String()); err != nil {
		return ref, bourse.Errorf(bourse.CodeInvalid, "image %s: %w", bourse.Quoted(name), err)
	}
	return ref, nil
}

// resolver returns the client of a registry, and what closes its connections.
func (r Request) resolver(name string) (remotes.Resolver, func(), error) {
	h, done, err := r.host(name)
	if err != nil {
		return nil, nil, err
	}
	hosts := func(string) ([]docker.RegistryHost, error) { return []docker.RegistryHost{h}, nil }
	return docker.NewResolver(docker.ResolverOptions{Hosts: hosts}), done, nil
}

// host returns how a registry is reached, and what closes the connections to it.
func (r Request) host(name string) (docker.RegistryHost, func(), error) {
	var none docker.RegistryHost
	login, err := r.login(name)
	if err != nil {
		return none, nil, err
	}
	loopback, err := docker.MatchLocalhost(name)
	if err != nil {
		return none, nil, bourse.Errorf(bourse.CodeInvalid, "registry %s: %w", bourse.Quoted(name), err)
	}
	roots, err := r.authorities()
	if err != nil {
		return none, nil, err
	}
	client := &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 5 * time.Minute, // a registry may compute the digest of a whole layer first
		ForceAttemptHTTP2:     true,
	}}
	h := docker.RegistryHost{
		Host: name, Scheme: "https", Path: "/v2", Client: client,
		Capabilities: docker.HostCapabilityPull | docker.HostCapabilityResolve | docker.HostCapabilityPush,
		Authorizer: docker.NewDockerAuthorizer(docker.WithAuthClient(client), docker.WithAuthCreds(func(string) (string, string, error) {
			return login.Name, login.Secret, nil
		})),
	}
	if r.CA == "" && (r.Insecure || loopback) {
		h.Scheme = "http"
	}
	return h, client.CloseIdleConnections, nil
}

// login returns the credentials for a registry.
func (r Request) login(host string) (credentials.Login, error) {
	if r.Login != (credentials.Login{}) || r.Config == "" {
		return r.Login, nil
	}
	raw, err := os.ReadFile(r.Config)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return credentials.Login{}, nil
	case err != nil:
		return credentials.Login{}, bourse.Errorf(bourse.CodeInvalid, "credentials: %w", err)
	}
	file, err := credentials.Parse(raw)
	if err != nil {
		return credentials.Login{}, bourse.Errorf(bourse.CodeInvalid, "credentials in %s: %w", r.Config, err)
	}
	login, err := file.Of(host)
	if err != nil {
		return login, bourse.Errorf(bourse.CodeInvalid, "credentials for %s: %w", host, err)
	}
	return login, nil
}

// authorities reads the certificates of CA; nil: the system's.
func (r Request) authorities() (*x509.CertPool, error) {
	if r.CA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(r.CA)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "authority of the registry: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, bourse.Errorf(bourse.CodeInvalid, "authority of the registry: %s holds no certificate", r.CA)
	}
	return pool, nil
}

// quiet keeps the client's own log, a line for every request that fails, off the
// terminal.
func quiet(ctx context.Context) context.Context {
	none := &logrus.Logger{Out: io.Discard, Formatter: &logrus.TextFormatter{}, Hooks: logrus.LevelHooks{}, Level: logrus.PanicLevel}
	return log.WithLogger(ctx, logrus.NewEntry(none))
}

// about says which archive an error is about.
func about(archive string, err error) error {
	return fmt.Errorf("%s: %w", archive, err)
}

// CheckName checks a name for [Request.Name]; its error is what Push would return for it.
func CheckName(name string) error {
	_, err := parse(name)
	return err
}
