package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"shoal/internal/backend/onnx/library"
	"shoal/internal/cli/command"
)

func newRuntime() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runtime",
		Short: "Install and list ONNX Runtime, which runs the models",
		Long: `ONNX Runtime is a shared library that Shoal loads when the first ONNX model does.
These commands put one into Shoal's data folder and show which ones are found.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRuntimeInstall(), newRuntimeList())
	return cmd
}

func newRuntimeInstall() *cobra.Command {
	var ifMissing, asJSON bool
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Put ONNX Runtime " + library.Version + " into Shoal's data folder",
		Long: `Install fetches the onnxruntime package with the pip of the python3 on your PATH,
so that your index and proxy settings hold, checks it against a pinned hash and
unpacks the library into Shoal's data folder. Doing it again changes nothing.`,
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
				fmt.Fprintf(cmd.ErrOrStderr(), "fetching ONNX Runtime %s through pip (about 25 MB) ...\n", library.Version)
			}
			done, err := library.Install(ctx, library.InstallOptions{Data: library.DataFolder(os.Getenv), Progress: cmd.ErrOrStderr()})
			if err != nil {
				return err
			}
			return reportLibrary(cmd, asJSON, done)
		},
	}
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
			return tw.Flush()
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
