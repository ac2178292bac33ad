package bourse_test

import (
	"testing"

	"github.com/bourse-dev/bourse"
)

func TestStorageOfAConfig(t *testing.T) {
	volume := bourse.NewVolumeID(1)
	for what, x := range map[string]struct {
		config bourse.Config
		fine   bool
	}{
		"a mount":              {bourse.Config{Mounts: []bourse.Mount{{Volume: volume, Path: "/data"}}}, true},
		"two mounts":           {bourse.Config{Mounts: []bourse.Mount{{Volume: volume, Path: "/a"}, {Volume: volume, Path: "/b"}}}, false},
		"no volume":            {bourse.Config{Mounts: []bourse.Mount{{Path: "/data"}}}, false},
		"a name for a volume":  {bourse.Config{Mounts: []bourse.Mount{{Volume: "data", Path: "/data"}}}, false},
		"the root":             {bourse.Config{Mounts: []bourse.Mount{{Volume: volume, Path: "/"}}}, false},
		"a path that climbs":   {bourse.Config{Mounts: []bourse.Mount{{Volume: volume, Path: "/data/../etc"}}}, false},
		"a relative path":      {bourse.Config{Mounts: []bourse.Mount{{Volume: volume, Path: "data"}}}, false},
		"a file":               {bourse.Config{Files: []bourse.File{{GuestPath: "/etc/motd", RawValue: []byte("hi"), Mode: 0o600}}}, true},
		"a file that climbs":   {bourse.Config{Files: []bourse.File{{GuestPath: "/../x"}}}, false},
		"a large file":         {bourse.Config{Files: []bourse.File{{GuestPath: "/x", RawValue: make([]byte, 2<<20)}}}, false},
		"a secret as file":     {bourse.Config{Files: []bourse.File{{GuestPath: "/x", SecretName: "S", RawValue: []byte("x")}}}, false},
		"a strange mode":       {bourse.Config{Files: []bourse.File{{GuestPath: "/x", Mode: 1 << 20}}}, false},
		"a negative root size": {bourse.Config{Rootfs: &bourse.Rootfs{SizeGB: -1}}, false},
		"a runtime":            {bourse.Config{Runtime: "io.containerd.runsc.v1"}, true},
		"a path as runtime":    {bourse.Config{Runtime: "/usr/bin/evil"}, false},
	} {
		x.config.Image = "nginx"
		if err := x.config.Normalize(); (err == nil) != x.fine {
			t.Errorf("%s: %v", what, err)
		}
	}
	host := bourse.Config{Image: "host", Init: bourse.Init{Cmd: []string{"true"}}, Files: []bourse.File{{GuestPath: "/etc/passwd"}}}
	if err := host.Normalize(); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("files on the host itself: %v", err)
	}
}
