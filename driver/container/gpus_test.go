package container

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func cardFile(model, uuid string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte("Model: \t\t " + model + "\nIRQ:   \t\t 183\nGPU UUID: \t " + uuid + "\nBus Type: \t PCIe\nGPU Excluded:\t No\n")}
}

const cardDir = "driver/nvidia/gpus/"

func gpuSpecs(t *testing.T, devices ...string) []string {
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

func noSMI(context.Context, ...string) ([]byte, error) { return nil, errors.New("no such program") }

func TestDetectGPUs(t *testing.T) {
	proc := fstest.MapFS{
		cardDir + "0000:65:00.0/information": cardFile("NVIDIA L40S", "GPU-b"),
		cardDir + "0000:17:00.0/information": cardFile("NVIDIA L40S", "GPU-a"),
		cardDir + "0000:ca:00.0/information": cardFile("NVIDIA A100-PCIE-40GB", "GPU-????????-????"),
	}
	got := DetectGPUs(t.Context(), GPUSources{Proc: proc, Specs: gpuSpecs(t, "0", "GPU-b"), SMI: noSMI})
	want := map[string][]string{"l40s": {"nvidia.com/gpu=0", "nvidia.com/gpu=GPU-b"}}
	if diff := cmp.Diff(want, got.Kinds); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
	if len(got.Unnamed) != 1 || got.Unnamed[0].Kind != "a100-pcie-40gb" || got.Unnamed[0].UUID != "" {
		t.Errorf("unnamed cards: got %+v, want only the A100, whose UUID is still unknown", got.Unnamed)
	}
}

func TestDetectGPUsWithSMI(t *testing.T) {
	proc := fstest.MapFS{cardDir + "0000:17:00.0/information": cardFile("NVIDIA A100-SXM4", "GPU-a")}
	smi := func(context.Context, ...string) ([]byte, error) {
		return []byte("nonsense\n3, 00000000:17:00.0, GPU-c, NVIDIA A100-SXM4, 81920\n9, 00000000:99:00.0, GPU-z, NVIDIA X, [N/A]\n"), nil
	}
	got := DetectGPUs(t.Context(), GPUSources{Proc: proc, Specs: gpuSpecs(t, "3"), SMI: smi})
	if diff := cmp.Diff(map[string][]string{"a100-sxm4-80gb": {"nvidia.com/gpu=3"}}, got.Kinds); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}

func TestDetectGPUsWithoutCards(t *testing.T) {
	got := DetectGPUs(t.Context(), GPUSources{Proc: fstest.MapFS{}, Specs: []string{t.TempDir()}, SMI: noSMI})
	if len(got.Kinds)+len(got.Unnamed)+len(got.Broken) != 0 {
		t.Errorf("found %+v", got)
	}
}

func TestDetectGPUsWithABrokenSpecification(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte("kind: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	proc := fstest.MapFS{cardDir + "0000:17:00.0/information": cardFile("NVIDIA A10", "GPU-a")}
	got := DetectGPUs(t.Context(), GPUSources{Proc: proc, Specs: []string{dir}, SMI: noSMI})
	if len(got.Broken) == 0 || len(got.Unnamed) != 1 {
		t.Errorf("found %+v, want the unnamed card and the error", got)
	}
}

// FuzzSmi checks that a kind can be part of a resource's name, no matter what the driver's tools
// print.
func FuzzSmi(f *testing.F) {
	f.Add("0, 00000000:17:00.0, GPU-a, NVIDIA L40S, 46068", "NVIDIA L40S")
	f.Add(",,,,", "Tesla T4")
	f.Add("0,17:00.0,,--,-1", "\x00--//")
	f.Fuzz(func(t *testing.T, line, model string) {
		proc := fstest.MapFS{cardDir + "0000:17:00.0/information": cardFile(model, "GPU-a")}
		got := DetectGPUs(t.Context(), GPUSources{
			Proc: proc, Specs: []string{filepath.Join(t.TempDir(), "none")},
			SMI: func(context.Context, ...string) ([]byte, error) { return []byte(line), nil },
		})
		for _, c := range got.Unnamed {
			if strings.Trim(c.Kind, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.HasPrefix(c.Kind, "-") || strings.HasSuffix(c.Kind, "-") || len(c.Kind) > 63 {
				t.Errorf("kind %q", c.Kind)
			}
		}
	})
}
