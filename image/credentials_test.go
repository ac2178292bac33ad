package image_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/image"
	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/internal/containerdtest"
)

// TestCredentials pulls from a registry that requires credentials and uses TLS with its own
// certificate authority.
func TestCredentials(t *testing.T) {
	server := containerdtest.Start(t)
	r := registrytest.Start(t, registrytest.Options{TLS: true, Username: "ann", Password: "secret"})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: random(1000)})
	other := foreignCA(t)
	docker := filepath.Join(t.TempDir(), "config.json")
	auth := base64.StdEncoding.EncodeToString([]byte("ann:secret"))
	if err := os.WriteFile(docker, fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, "https://"+r.Host+"/v2/", auth), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		registry image.Registry
		docker   string
		want     bourse.Code
	}{
		"unknown authority":   {image.Registry{CA: other, Username: "ann", Password: "secret"}, "", bourse.CodeUnavailable},
		"no credentials":      {image.Registry{CA: r.CA}, "", bourse.CodeNotFound},
		"wrong credentials":   {image.Registry{CA: r.CA, Username: "ann", Password: "guess"}, "", bourse.CodeNotFound},
		"missing authority":   {image.Registry{CA: r.CA + ".gone"}, "", bourse.CodeUnavailable},
		"credentials":         {image.Registry{CA: r.CA, Username: "ann", Password: "secret"}, "", ""},
		"docker's":            {image.Registry{CA: r.CA}, docker, ""},
		"docker's are broken": {image.Registry{CA: r.CA}, r.CA, bourse.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHost(t, server).open(t, func(c *image.Config) {
				c.Registries, c.DockerConfig = map[string]image.Registry{r.Host: tc.registry}, tc.docker
			})
			_, err := s.Resolve(t.Context(), "", p.Name)
			wantCode(t, err, tc.want)
			_, err = s.Pull(t.Context(), "", refOf(p), nil)
			wantCode(t, err, tc.want)
		})
	}
}

// foreignCA returns the path of the certificate of a CA that has not signed any certificate in this test.
func foreignCA(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "other.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
