package build

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/image/registrytest"
)

// files writes files to a temporary directory and returns the directory.
func files(tb testing.TB, list map[string]string) string {
	tb.Helper()
	dir := tb.TempDir()
	for name, text := range list {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// app contains the files of a project: a Dockerfile with two stages, and files that the
// ignore file excludes.
var app = map[string]string{
	"Dockerfile.web": "FROM scratch AS base\nARG WHO=nobody\nLABEL who=$WHO\nCOPY . /app/\nFROM base AS other\nLABEL other=yes\n",
	"page.html":      "hello",
	"key.secret":     "excluded from the image",
	"my.ignore":      "*.secret\nDockerfile.web\nmy.ignore\n",
}

// TestRealBuilders builds an image with each builder that works on this host, pushes it to
// a real registry, and checks the image's contents.
func TestRealBuilders(t *testing.T) {
	for _, b := range builders {
		t.Run(b.name, func(t *testing.T) {
			if err := b.works(t.Context()); err != nil {
				t.Skip(err)
			}
			r := registrytest.Start(t, registrytest.Options{})
			dir := files(t, app)
			request := Request{
				Dir: dir, Dockerfile: "Dockerfile.web", Ignorefile: "my.ignore", Target: "base",
				Args: map[string]string{"WHO": "ann and bob"}, PushTo: r.Name("web:v1"), Builder: b.name,
			}
			var out bytes.Buffer
			image, err := Build(t.Context(), request, &out)
			if bourse.CodeOf(err) == bourse.CodeFailedPrecondition {
				// docker without buildx supports only the default ignore file.
				if err := os.Rename(filepath.Join(dir, "my.ignore"), filepath.Join(dir, ".dockerignore")); err != nil {
					t.Fatal(err)
				}
				request.Ignorefile = ".dockerignore"
				image, err = Build(t.Context(), request, &out)
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			name, dig, _ := strings.Cut(image, "@")
			if name != r.Name("web:v1") {
				t.Errorf("the image name is %s", image)
			}
			config, paths := look(t, r, "web", dig)
			if want := map[string]string{"who": "ann and bob"}; !cmp.Equal(config.Config.Labels, want) {
				t.Errorf("labels %v, want %v", config.Config.Labels, want)
			}
			if !slices.Contains(paths, "app/page.html") || slices.Contains(paths, "app/key.secret") {
				t.Errorf("the image contains %v, want app/page.html and no excluded files", paths)
			}
			request.Dockerfile = "page.html" // not a Dockerfile
			if _, err := Build(t.Context(), request, io.Discard); bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("a failing build: %v", err)
			}
		})
	}
}

// look reads an image from a registry. It returns the image's configuration and the paths
// of its files.
func look(t *testing.T, r *registrytest.Registry, repository, dig string) (config ocispec.Image, paths []string) {
	t.Helper()
	var manifest ocispec.Manifest
	base := "http://" + r.Host + "/v2/" + repository
	unmarshal(t, get(t, base+"/manifests/"+dig), &manifest)
	unmarshal(t, get(t, base+"/blobs/"+manifest.Config.Digest.String()), &config)
	for _, l := range manifest.Layers {
		unzipped, err := gzip.NewReader(bytes.NewReader(get(t, base+"/blobs/"+l.Digest.String())))
		if err != nil {
			t.Fatal(err)
		}
		files := tar.NewReader(unzipped)
		for {
			h, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			paths = append(paths, h.Name)
		}
	}
	return config, paths
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", ocispec.MediaTypeImageManifest+", application/vnd.docker.distribution.manifest.v2+json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s %v", url, resp.Status, body, err)
	}
	return body
}

func unmarshal(t *testing.T, raw []byte, to any) {
	t.Helper()
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatal(err)
	}
}

// archive writes an OCI archive with a small image, as a builder would.
func archive(t *testing.T) (path, dig string) {
	t.Helper()
	image := registrytest.Build(t, registrytest.Image{Layers: []registrytest.Layer{{"page.html": {Data: []byte("hello")}}}})
	index, err := json.Marshal(ocispec.Index{Manifests: []ocispec.Descriptor{image.Manifest}})
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]string{"oci-layout": `{"imageLayoutVersion":"1.0.0"}`, "index.json": string(index)}
	for d, data := range image.Blobs {
		list["blobs/"+string(digest.SHA256)+"/"+d.Encoded()] = string(data)
	}
	path = filepath.Join(t.TempDir(), "image.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	if err := errors.Join(w.AddFS(os.DirFS(files(t, list))), w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path, image.Manifest.Digest.String()
}

// recorder is a script that replaces a builder. It records how it was called, and copies an
// archive to the requested path.
const recorder = `#!/bin/sh
me=${0##*/}
case "$me $1 $2" in
"buildctl debug workers" | "docker version " | "podman info ") [ ! -e "$RECORDS/$me.down" ] || { echo "cannot connect"; exit 1; }; exit ;;
"docker buildx version") [ -e "$RECORDS/buildx" ]; exit ;;
esac
echo "$DOCKER_BUILDKIT $me $*" >>"$RECORDS/calls"
echo "$me is building"
for arg; do
	case "$before $arg" in
	"--iidfile "*) echo sha256:1d >"$arg" ;;
	"--output type=oci,dest="*) cp "$RECORDS/archive" "${arg#type=oci,dest=}" ;;
	"--output "*) cp "$RECORDS/archive" "$arg" ;;
	"--local dockerfile="*) ls "${arg#dockerfile=}" >>"$RECORDS/calls" ;;
	esac
	before=$arg
done
`

// record sets PATH to a directory that contains only recorders with the given names, and
// the commands that they call.
func record(t *testing.T, programs ...string) (records string) {
	t.Helper()
	records = t.TempDir()
	bin := t.TempDir()
	for _, name := range programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(recorder), 0o755); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
	}
	for _, name := range []string{"cp", "ls"} {
		if err := os.Symlink(filepath.Join("/bin", name), filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	t.Setenv("RECORDS", records)
	t.Setenv("TMPDIR", t.TempDir())
	return records
}

// TestCommands checks how builders are called, using recorders.
func TestCommands(t *testing.T) {
	for name, tc := range map[string]struct {
		programs []string
		files    []string // files that change how recorders behave
		edit     func(*Request)
		want     string
	}{
		"buildctl": {
			[]string{"buildctl", "docker"},
			nil, func(*Request) {},
			" buildctl build --frontend dockerfile.v0 --progress plain --local context=DIR --local dockerfile=TMP/dockerfile --opt filename=Dockerfile" +
				" --opt target=base --opt build-arg:A=1 --opt build-arg:B=two words --output type=oci,dest=TMP/image.tar\n" +
				"Dockerfile\nDockerfile.dockerignore\n",
		},
		"buildctl plainly": {
			[]string{"buildctl"},
			nil, func(r *Request) { r.Ignorefile, r.Target, r.Args = "", "", nil },
			" buildctl build --frontend dockerfile.v0 --progress plain --local context=DIR --local dockerfile=DIR --opt filename=Dockerfile.web" +
				" --output type=oci,dest=TMP/image.tar\nDockerfile.web\nkey.secret\nmy.ignore\npage.html\n",
		},
		"buildx, because buildkitd is missing": {
			[]string{"buildctl", "docker"},
			[]string{"buildctl.down", "buildx"},
			func(*Request) {},
			" docker buildx build --load --progress plain --file TMP/dockerfile/Dockerfile --target base --build-arg A=1 --build-arg B=two words" +
				" --iidfile TMP/id DIR\n docker save --output TMP/image.tar sha256:1d\n",
		},
		"docker": {
			[]string{"docker"},
			nil, func(r *Request) { r.Ignorefile = "" },
			"0 docker build --file DIR/Dockerfile.web --target base --build-arg A=1 --build-arg B=two words --iidfile TMP/id DIR\n" +
				"0 docker save --output TMP/image.tar sha256:1d\n",
		},
		"podman": {
			[]string{"docker", "podman"},
			[]string{"docker.down"},
			func(*Request) {},
			" podman build --ignorefile DIR/my.ignore --file DIR/Dockerfile.web --target base --build-arg A=1 --build-arg B=two words" +
				" --iidfile TMP/id DIR\n podman save --format oci-archive --output TMP/image.tar sha256:1d\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			registry := registrytest.Start(t, registrytest.Options{})
			from, dig := archive(t)
			dir := files(t, app)
			records := record(t, tc.programs...)
			if err := os.Symlink(from, filepath.Join(records, "archive")); err != nil {
				t.Fatal(err)
			}
			for _, f := range tc.files {
				if err := os.WriteFile(filepath.Join(records, f), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			request := Request{
				Dir: dir, Dockerfile: "Dockerfile.web", Ignorefile: "my.ignore", Target: "base",
				Args: map[string]string{"B": "two words", "A": "1"}, PushTo: registry.Name("web:v1"),
			}
			tc.edit(&request)
			var out bytes.Buffer
			image, err := Build(t.Context(), request, &out)
			if want := registry.Name("web:v1@" + dig); image != want || err != nil {
				t.Fatalf("%q, %v, want %q\n%s", image, err, want, out.String())
			}
			if !strings.Contains(out.String(), "is building") {
				t.Errorf("the builder's output is not shown: %q", out.String())
			}
			calls, err := os.ReadFile(filepath.Join(records, "calls"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, nameless(string(calls), dir)); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if left, err := fs.Glob(os.DirFS(os.TempDir()), tempPrefix+"*"); len(left) > 0 || err != nil {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
}

// nameless replaces the paths of temporary directories in calls with fixed names.
func nameless(calls, dir string) string {
	calls = strings.ReplaceAll(calls, dir, "DIR")
	if _, rest, ok := strings.Cut(calls, os.TempDir()+"/"+tempPrefix); ok {
		number, _, _ := strings.Cut(rest, "/")
		calls = strings.ReplaceAll(calls, os.TempDir()+"/"+tempPrefix+number, "TMP")
	}
	return calls
}

// TestNoBuilder checks that the error explains what to do if no builder works or the
// request is invalid.
func TestNoBuilder(t *testing.T) {
	dir := files(t, app)
	records := record(t, "docker")
	if err := os.WriteFile(filepath.Join(records, "docker.down"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	good := Request{Dir: dir, Dockerfile: "Dockerfile.web", PushTo: "registry.test/web"}
	for name, tc := range map[string]struct {
		edit func(*Request)
		code bourse.Code
		want string
	}{
		"none": {
			func(*Request) {}, bourse.CodeFailedPrecondition,
			"this host cannot build a Dockerfile: install Docker, Podman or BuildKit (buildctl and buildkitd), " +
				"or build the image on another host, push it with bourse image push ARCHIVE NAME, and deploy it with --image NAME " +
				`(buildctl is not installed; docker is installed, but its daemon does not answer: "cannot connect"; podman is not installed)`,
		},
		"unknown":     {func(r *Request) { r.Builder = "kaniko" }, bourse.CodeInvalid, "use one of buildctl, docker, podman"},
		"nowhere":     {func(r *Request) { r.PushTo = "" }, bourse.CodeInvalid, "--push-to"},
		"bad name":    {func(r *Request) { r.PushTo = "registry.test/Web" }, bourse.CodeInvalid, "lowercase"},
		"no file":     {func(r *Request) { r.Dockerfile = "" }, bourse.CodeNotFound, "--image"},
		"ignore file": {func(r *Request) { r.Ignorefile = "none" }, bourse.CodeNotFound, "none"},
	} {
		r := good
		tc.edit(&r)
		_, err := Build(t.Context(), r, io.Discard)
		if err == nil || bourse.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s: %s", name, err, tc.code, tc.want)
		}
	}
}
