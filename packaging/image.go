//go:build ignore

// This program writes the container image to a file. Usage: image FILE. The file has the format of docker save, which
// all container tools can read. scripts/package runs the program in the directory that becomes the tarball, and sets
// the environment variables ARCH, VERSION, REVISION (the commit) and SOURCE_DATE_EPOCH.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err == nil {
		err = write(os.Args[1], os.Getenv("VERSION"), time.Unix(seconds, 0).UTC())
	}
	if err != nil {
		log.Fatalf("write image: %v", err)
	}
}

// write writes the image to a file. The registry in the image's name is localhost, so that tools do not pull a
// different image with the same name.
func write(path, version string, created time.Time) error {
	tag, err := name.NewTag("localhost/bourse:" + strings.NewReplacer("+", "-", "~", "-").Replace(version))
	if err != nil {
		return err
	}
	content, err := files(created)
	if err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithCompressionLevel(gzip.BestCompression))
	if err != nil {
		return err
	}
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: os.Getenv("ARCH"), Created: v1.Time{Time: created},
		Config: v1.Config{
			Entrypoint: []string{"/usr/bin/bourse"},
			Env:        []string{"PATH=/usr/bin"},
			Labels: map[string]string{
				"org.opencontainers.image.title":    "Bourse",
				"org.opencontainers.image.version":  version,
				"org.opencontainers.image.source":   "https://github.com/bourse-dev/bourse",
				"org.opencontainers.image.revision": os.Getenv("REVISION"),
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
	})
	if err == nil {
		image, err = mutate.AppendLayers(image, layer)
	}
	if err != nil {
		return err
	}
	return tarball.WriteToFile(path, tag, image)
}

// files returns the image's files as an archive: the program, its license, the CA certificates
// that Mozilla trusts, and a directory for temporary files.
func files(modified time.Time) ([]byte, error) {
	program, err := os.ReadFile("bourse")
	license, errLicense := os.ReadFile("LICENSE")
	if err = errors.Join(err, errLicense); err != nil {
		return nil, err
	}
	var certificates []byte
	for root := range bundle.Roots() {
		if root.Constraint == nil { // a PEM file cannot contain a root's constraints
			certificates = append(certificates, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})...)
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []struct {
		path string
		mode int64
		data []byte
	}{
		{"etc/ssl/certs/ca-certificates.crt", 0o644, certificates},
		{"tmp/", 0o1777, nil},
		{"usr/bin/bourse", 0o755, program},
		{"usr/share/doc/bourse/copyright", 0o644, license},
	} {
		header := tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(f.data)), ModTime: modified}
		if err := w.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err = w.Close()
	return out.Bytes(), err
}
