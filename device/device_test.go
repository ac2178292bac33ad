package device_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse/device"
)

func card(model, uuid string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte("Model: \t\t " + model + "\nIRQ:   \t\t 183\nGPU UUID: \t " + uuid + "\nBus Type: \t PCIe\nGPU Excluded:\t No\n")}
}

const where = "driver/nvidia/gpus/"

func specs(t *testing.T, devices ...string) []string {
	t.Helper()
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n")
	for _, d := range devices {
		b.WriteString("- name: \"" + d + "\"\n  containerEdits:\n    deviceNodes:\n    - path: /dev/null\n")
	}
	if err := os.WriteFile(filepath.Join(dir, "nvidia.yaml"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{dir}
}

func silent(context.Context, ...string) ([]byte, error) { return nil, errors.New("no such program") }

func TestCardsAreFoundByTheDriversFiles(t *testing.T) {
	proc := fstest.MapFS{
		where + "0000:65:00.0/information": card("NVIDIA L40S", "GPU-b"),
		where + "0000:17:00.0/information": card("NVIDIA L40S", "GPU-a"),
		where + "0000:ca:00.0/information": card("NVIDIA A100-PCIE-40GB", "GPU-????????-????"),
	}
	got := device.Detect(t.Context(), device.Config{Proc: proc, Specs: specs(t, "0", "GPU-b"), Smi: silent})
	want := map[string][]string{"l40s": {"nvidia.com/gpu=0", "nvidia.com/gpu=GPU-b"}}
	if diff := cmp.Diff(want, got.Kinds); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
	if len(got.Unnamed) != 1 || got.Unnamed[0].Kind != "a100-pcie-40gb" || got.Unnamed[0].UUID != "" {
		t.Errorf("without a name: %+v, want the A100, whose UUID no one knows yet", got.Unnamed)
	}
}

func TestSmiSaysMore(t *testing.T) {
	proc := fstest.MapFS{where + "0000:17:00.0/information": card("NVIDIA A100-SXM4", "GPU-a")}
	smi := func(context.Context, ...string) ([]byte, error) {
		return []byte("nonsense\n3, 00000000:17:00.0, GPU-c, NVIDIA A100-SXM4, 81920\n9, 00000000:99:00.0, GPU-z, NVIDIA X, [N/A]\n"), nil
	}
	got := device.Detect(t.Context(), device.Config{Proc: proc, Specs: specs(t, "3"), Smi: smi})
	if diff := cmp.Diff(map[string][]string{"a100-sxm4-80gb": {"nvidia.com/gpu=3"}}, got.Kinds); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}

func TestAHostWithoutCardsHasNone(t *testing.T) {
	got := device.Detect(t.Context(), device.Config{Proc: fstest.MapFS{}, Specs: []string{t.TempDir()}, Smi: silent})
	if len(got.Kinds)+len(got.Unnamed)+len(got.Broken) != 0 {
		t.Errorf("found %+v", got)
	}
}

func TestABrokenSpecificationIsNamed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte("kind: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	proc := fstest.MapFS{where + "0000:17:00.0/information": card("NVIDIA A10", "GPU-a")}
	got := device.Detect(t.Context(), device.Config{Proc: proc, Specs: []string{dir}, Smi: silent})
	if len(got.Broken) == 0 || len(got.Unnamed) != 1 {
		t.Errorf("found %+v, want the card without a name and the reason", got)
	}
}

// FuzzSmi: whatever the driver's tools print, a kind can be a resource's name.
func FuzzSmi(f *testing.F) {
	f.Add("0, 00000000:17:00.0, GPU-a, NVIDIA L40S, 46068", "NVIDIA L40S")
	f.Add(",,,,", "Tesla T4")
	f.Add("0,17:00.0,,--,-1", "\x00--//")
	f.Fuzz(func(t *testing.T, line, model string) {
		proc := fstest.MapFS{where + "0000:17:00.0/information": card(model, "GPU-a")}
		got := device.Detect(t.Context(), device.Config{
			Proc: proc, Specs: []string{filepath.Join(t.TempDir(), "none")},
			Smi: func(context.Context, ...string) ([]byte, error) { return []byte(line), nil },
		})
		for _, c := range got.Unnamed {
			if strings.Trim(c.Kind, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.HasPrefix(c.Kind, "-") || strings.HasSuffix(c.Kind, "-") || len(c.Kind) > 63 {
				t.Errorf("kind %q", c.Kind)
			}
		}
	})
}
