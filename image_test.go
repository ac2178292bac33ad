package bourse_test

import (
	"testing"

	"github.com/bourse-dev/bourse"
)

func TestImageRefIsANameAgain(t *testing.T) {
	for in, want := range map[string]string{
		"nginx":                         "registry-1.docker.io/library/nginx:latest",
		"docker.io/me/app:v1":           "registry-1.docker.io/me/app:v1",
		"localhost:5000/a/b":            "localhost:5000/a/b:latest",
		"ghcr.io/a/b:c@sha256:12":       "ghcr.io/a/b:c@sha256:12",
		"registry.example/app@sha256:1": "registry.example/app@sha256:1",
	} {
		ref := bourse.ParseImageRef(in)
		if got := ref.String(); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
		if again := bourse.ParseImageRef(ref.String()); again.String() != want {
			t.Errorf("%s: got %s when the result was parsed again, want %s", in, again, want)
		}
	}
}

func TestKindOfImage(t *testing.T) {
	for image, want := range map[string]bourse.ImageKind{
		bourse.ImageHost: bourse.HostImage, bourse.ImagePull: bourse.PollerImage,
		"": bourse.RegistryImage, "nginx": bourse.RegistryImage, "host:latest": bourse.RegistryImage, "process": bourse.RegistryImage,
	} {
		if got := bourse.KindOfImage(image); got != want {
			t.Errorf("%q: %s, want %s", image, got, want)
		}
	}
}
