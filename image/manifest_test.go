package image

import (
	"strings"
	"testing"

	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
)

const (
	configJSON = `{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2}`
	layerJSON  = `{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":9,"urls":["http://169.254.169.254/"],"data":"e30=","annotations":{"containerd.io/snapshot/uidmapping":"0:0:1"}}`
)

func TestParseDocument(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat(layerJSON+",", maxLayers+1), ",")
	for name, tc := range map[string]struct {
		raw  string
		want bourse.Code
	}{
		"manifest":           {`{"config":` + configJSON + `,"layers":[` + layerJSON + `]}`, ""},
		"no layers":          {`{"config":` + configJSON + `}`, ""},
		"empty index":        {`{"manifests":[]}`, ""},
		"not JSON":           {`<html>`, bourse.CodeInvalid},
		"nothing":            {`{}`, bourse.CodeInvalid},
		"both":               {`{"config":` + configJSON + `,"manifests":[]}`, bourse.CodeInvalid},
		"layers alone":       {`{"layers":[` + layerJSON + `],"manifests":[]}`, bourse.CodeInvalid},
		"docker's first":     {`{"schemaVersion":1,"fsLayers":[]}`, bourse.CodeInvalid},
		"too many layers":    {`{"config":` + configJSON + `,"layers":[` + many + `]}`, bourse.CodeInvalid},
		"no digest":          {`{"config":{"mediaType":"application/vnd.oci.image.config.v1+json","size":2}}`, bourse.CodeInvalid},
		"digest with a path": {`{"config":` + strings.Replace(configJSON, "sha256:", "sha256:../", 1) + `}`, bourse.CodeInvalid},
		"negative size":      {`{"config":` + strings.Replace(configJSON, `"size":2`, `"size":-2`, 1) + `}`, bourse.CodeInvalid},
		"size beyond sums":   {`{"config":` + configJSON + `,"layers":[` + strings.Replace(layerJSON, `"size":9`, `"size":9223372036854775807`, 1) + `]}`, bourse.CodeInvalid},
	} {
		d, err := parseDocument([]byte(tc.raw))
		if got := bourse.CodeOf(err); got != tc.want {
			t.Errorf("%s: code %q (%v), want %q", name, got, err, tc.want)
		}
		for _, l := range d.Layers {
			if err == nil && (l.URLs != nil || l.Data != nil || l.Annotations != nil) {
				t.Errorf("%s: layer %+v still refers to another host", name, l)
			}
		}
	}
}

func FuzzParseDocument(f *testing.F) {
	f.Add([]byte(`{"config":` + configJSON + `,"layers":[` + layerJSON + `]}`))
	f.Add([]byte(`{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2,"platform":{"os":"linux","architecture":"amd64"}}]}`))
	f.Add([]byte(`{"manifests":null,"config":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := parseDocument(raw)
		if err != nil {
			if bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("code %q: %v", bourse.CodeOf(err), err)
			}
			return
		}
		if d.isIndex() {
			if m, err := choose(d, hostPlatform()); err == nil && m.Digest.Validate() != nil {
				t.Errorf("chose %q", m.Digest)
			}
			return
		}
		needs := outline{document: d}.needs()
		if needs.sum() <= 0 || needs.sum() > maxBytes+maxManifest {
			t.Errorf("an image of %d bytes", needs.sum())
		}
	})
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":["sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"]},"config":{"Labels":{"a":"b"}}}`), 1)
	f.Add([]byte(`{"rootfs":{"diff_ids":["x"]}}`), 1)
	f.Fuzz(func(t *testing.T, raw []byte, layers int) {
		c, err := parseConfig(raw, layers, hostPlatform())
		if err == nil && len(c.chains()) != layers {
			t.Errorf("%d layers, want %d", len(c.chains()), layers)
		}
	})
}

func TestChoose(t *testing.T) {
	manifest := func(n string, p *ocispec.Platform) ocispec.Descriptor {
		return ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, ArtifactType: n, Platform: p}
	}
	index := document{Manifests: []ocispec.Descriptor{
		manifest("attestation", &ocispec.Platform{OS: "unknown", Architecture: "unknown"}),
		manifest("signature", nil),
		manifest("v6", &ocispec.Platform{OS: "linux", Architecture: "arm", Variant: "v6"}),
		manifest("v7", &ocispec.Platform{OS: "linux", Architecture: "arm", Variant: "v7"}),
		manifest("amd64", &ocispec.Platform{OS: "linux", Architecture: "amd64"}),
		manifest("windows", &ocispec.Platform{OS: "windows", Architecture: "amd64"}),
	}}
	for host, want := range map[string]string{"linux/amd64": "amd64", "linux/arm/v7": "v7", "linux/arm/v6": "v6", "linux/s390x": ""} {
		got, err := choose(index, platforms.Only(platforms.MustParse(host)))
		if got.ArtifactType != want || (err == nil) != (want != "") {
			t.Errorf("%s gets %q, %v, want %q", host, got.ArtifactType, err, want)
		}
	}
}
