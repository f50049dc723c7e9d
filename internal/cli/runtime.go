package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"shoal/internal/backend/cuda"
	"shoal/internal/backend/onnx/library"
	"shoal/internal/cli/command"
	"shoal/internal/shm"
)

func newRuntime() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runtime",
		Short: "Install and list ONNX Runtime, which runs the models",
		Long: `ONNX Runtime is a shared library that Shoal loads when the first ONNX model
does. These commands put one into Shoal's data folder and show which ones are
found.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRuntimeInstall(), newRuntimeList())
	return cmd
}

func newRuntimeInstall() *cobra.Command {
	var ifMissing, asJSON, gpu bool
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Put ONNX Runtime " + library.Version + " into Shoal's data folder",
		Long: `Install fetches the onnxruntime package with the pip of the python3 on your
PATH, so that your index and proxy settings hold, checks it against a pinned
hash and unpacks the library into Shoal's data folder. Doing it again changes
nothing.

With --gpu it is the package for NVIDIA's GPUs (CUDA 13, onnxruntime-gpu), and
the report lists which of the libraries that it needs are there: the driver,
CUDA's runtime, cuBLAS, cuRAND and cuDNN are not part of the package.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ifMissing {
				if path, err := library.Find(library.Environment("", os.Getenv)); err == nil {
					return reportLibrary(cmd, asJSON, library.Installed{Path: path, Already: true})
				}
			}
			ctx, cancel := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer cancel()
			if !asJSON {
				size := 25
				if gpu {
					size = 247
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "fetching ONNX Runtime %s through pip (about %d MB) ...\n", library.Version, size)
			}
			done, err := library.Install(ctx, library.InstallOptions{Data: library.DataFolder(os.Getenv), GPU: gpu, Progress: cmd.ErrOrStderr()})
			if err != nil {
				return err
			}
			if err := reportLibrary(cmd, asJSON, done); err != nil || !gpu || asJSON {
				return err
			}
			return reportGPUs(cmd.OutOrStdout(), done.Path)
		},
	}
	cmd.Flags().BoolVar(&gpu, "gpu", false, "the build for NVIDIA's GPUs")
	cmd.Flags().BoolVar(&ifMissing, "if-missing", false, "do nothing when any library is found already")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

// reportLibrary prints where the library is.
func reportLibrary(cmd *cobra.Command, asJSON bool, done library.Installed) error {
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"path": done.Path, "version": done.Version, "already": done.Already})
	}
	verb := "installed"
	if done.Already {
		verb = "found"
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", verb, done.Path)
	return nil
}

// reportGPUs prints the GPUs, and what the library at a path needs to use them.
func reportGPUs(to io.Writer, path string) error {
	tw := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\nNEEDED FOR GPUS\tFOUND\tWHAT TO DO")
	for _, c := range library.Components(path) {
		found, hint := c.Path, ""
		if c.Err != nil {
			found, hint = "missing", c.Hint
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", c.Name, found, hint)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	return listGPUs(to)
}

// listGPUs prints the machine's GPUs.
func listGPUs(to io.Writer) error {
	driver, err := cuda.Open()
	if err != nil {
		fmt.Fprintf(to, "\nno GPUs: %v\n", err)
		return nil
	}
	infos, err := driver.Infos()
	if err != nil {
		return err
	}
	tw := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\nGPU\tNAME\tMEMORY\tCAPABILITY\tUUID")
	for _, g := range infos {
		fmt.Fprintf(tw, "%d\t%s\t%d MB\t%s\t%s\n", g.ID, g.Name, g.Memory>>20, g.Capability, g.UUID)
	}
	fmt.Fprintf(tw, "the driver supports CUDA up to %s\n", driver.Version())
	return tw.Flush()
}

// gpuNames describes the machine's GPUs for other commands, in one line each.
func gpuNames() (list []string) {
	driver, err := cuda.Open()
	if err != nil {
		return nil
	}
	infos, err := driver.Infos()
	if err != nil {
		return nil
	}
	for _, g := range infos {
		list = append(list, fmt.Sprintf("%d %s (%d MB)", g.ID, g.Name, g.Memory>>20))
	}
	return list
}

// openCUDA returns what opens the memory of GPUs that clients lend; nil without
// GPUs.
func openCUDA() func(int, []byte) (shm.Memory, error) {
	driver, err := cuda.Open()
	if err != nil || driver.Count() == 0 {
		return nil
	}
	return func(device int, handle []byte) (shm.Memory, error) { return cuda.OpenShared(driver, device, handle) }
}

func newRuntimeList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show which libraries are found where, and their execution providers",
		Long: `List shows every ONNX Runtime library that is found, in the order in which serve
looks for one; the first is the one it takes.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := library.List(library.Environment("", os.Getenv))
			if asJSON {
				return listJSON(cmd, found)
			}
			if len(found) == 0 {
				return errors.New("no ONNX Runtime was found; run `shoal runtime install`")
			}
			tw := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(tw, "VERSION\tFOUND IN\tPROVIDERS\tPATH")
			for _, c := range found {
				providers := strings.ReplaceAll(strings.Join(c.Providers, ", "), "ExecutionProvider", "")
				if c.Err != nil {
					providers = "unusable: " + c.Err.Error()
				}
				fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", c.Version, c.Origin, providers, c.Path)
			}
			if err := tw.Flush(); err != nil {
				return err
			}
			for _, c := range found {
				if slices.Contains(c.Providers, "CUDAExecutionProvider") {
					return reportGPUs(cmd.OutOrStdout(), c.Path)
				}
			}
			return listGPUs(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func listJSON(cmd *cobra.Command, found []library.Candidate) error {
	type line struct {
		Path      string   `json:"path"`
		Origin    string   `json:"origin"`
		Version   string   `json:"version"`
		Providers []string `json:"providers"`
		Error     string   `json:"error,omitempty"`
	}
	lines := []line{}
	for _, c := range found {
		l := line{Path: c.Path, Origin: string(c.Origin), Version: c.Version, Providers: c.Providers}
		if c.Err != nil {
			l.Error = c.Err.Error()
		}
		lines = append(lines, l)
	}
	return json.NewEncoder(cmd.OutOrStdout()).Encode(lines)
}
