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

// Request describes a push.
type Request struct {
	Archive string // path of a tar file or a directory
	Image   string // name, tag or digest of the image in the archive; "" means the only image
	Name    string // registry/repository[:tag] to push to; the default tag is "latest"

	Login    credentials.Login // credentials for the registry; if zero, those in Config are used
	Config   string            // path of docker's config.json, which need not exist; "" means none
	Insecure bool              // use plain HTTP; registries on loopback always use it unless CA is set
	CA       string            // optional PEM file with the CAs of the registry's certificate

	Temp     string         // directory for the copy of the archive; "" means the system's default
	Progress func(Progress) // optional; calls do not overlap, and end before Push returns
}

// Progress is the progress of a push in bytes. Parts that the registry already has are counted as sent.
type Progress struct{ Sent, Total int64 }

// tempPrefix is the prefix of the names of temporary directories.
const tempPrefix = "bourse-push-"

// Push uploads an image and returns its name with its digest: "registry/repository:tag@sha256:…". It uploads every part
// before the manifest that lists it, and sets the tag last. If a push fails or is canceled, the tag therefore remains
// unchanged, and a repeated push sends only the missing parts.
//
// Before anything is sent, the archive is checked and its digests are computed. An archive
// is limited to 10,000 entries and 64 GiB, and each manifest to 4 MiB.
//
// Errors: invalid if the archive or the name is invalid; not_found if the archive or the image does
// not exist; unauthorized or forbidden if the registry refuses the credentials; unavailable if the
// registry does not answer; canceled if ctx is done.
func Push(ctx context.Context, r Request) (string, error) {
	return r.push(ctx, defaultLimits)
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
	if _, err := tempdir.RemoveLeftover(tempOf(r.Temp), tempPrefix, func(string) error { return nil }); err != nil {
		return "", err
	}
	dir, err := tempdir.Make(tempOf(r.Temp), tempPrefix)
	if err != nil {
		return "", err
	}
	defer func() { _ = dir.Remove() }() // if this fails, the next push removes the directory
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

// atOnce is the number of parts that are sent concurrently.
const atOnce = 3

func tempOf(dir string) string {
	if dir == "" {
		return os.TempDir()
	}
	return dir
}

// parse parses and validates the name under which the image will be stored in the registry.
func parse(name string) (bourse.ImageRef, error) {
	ref := bourse.ParseImageRef(name)
	switch {
	case ref.Registry == "":
		return ref, bourse.Errorf(bourse.CodeInvalid, "image name %s contains no registry", bourse.Quoted(name))
	case ref.Digest != "":
		return ref, bourse.Errorf(bourse.CodeInvalid, "image name %s contains a digest: omit the digest, because the archive determines it", bourse.Quoted(name))
	}
	if _, err := reference.ParseNamed(ref.String()); err != nil {
		return ref, bourse.Errorf(bourse.CodeInvalid, "image %s: %w", bourse.Quoted(name), err)
	}
	return ref, nil
}

// resolver returns a client for a registry and a function that closes the client's connections.
func (r Request) resolver(name string) (remotes.Resolver, func(), error) {
	h, done, err := r.host(name)
	if err != nil {
		return nil, nil, err
	}
	hosts := func(string) ([]docker.RegistryHost, error) { return []docker.RegistryHost{h}, nil }
	return docker.NewResolver(docker.ResolverOptions{Hosts: hosts}), done, nil
}

// host returns the client configuration for a registry and a function that closes the client's connections.
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
		ResponseHeaderTimeout: 5 * time.Minute, // a registry may compute a layer's digest before it responds
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

// authorities returns the CA certificates in the file r.CA. If r.CA is empty, it returns nil, which means the system's
// CA certificates.
func (r Request) authorities() (*x509.CertPool, error) {
	if r.CA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(r.CA)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "CA of the registry: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, bourse.Errorf(bourse.CodeInvalid, "CA of the registry: %s contains no certificate", r.CA)
	}
	return pool, nil
}

// quiet returns a context that disables logging by containerd's client, which would otherwise log every failed request.
func quiet(ctx context.Context) context.Context {
	none := &logrus.Logger{Out: io.Discard, Formatter: &logrus.TextFormatter{}, Hooks: logrus.LevelHooks{}, Level: logrus.PanicLevel}
	return log.WithLogger(ctx, logrus.NewEntry(none))
}

// about adds the archive's path to an error.
func about(archive string, err error) error {
	return fmt.Errorf("%s: %w", archive, err)
}

// CheckName checks a value for [Request.Name]. It returns the error that [Push] would return for it.
func CheckName(name string) error {
	_, err := parse(name)
	return err
}
