package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"shoal/internal/archive"
	"shoal/internal/cli/command"
)

// newArchive returns the archive command.
func newArchive() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Make and check model archives (.mar) of Multi Model Server and TorchServe",
		Args:  command.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	create := &cobra.Command{Use: "create", Short: "Make an archive of a folder, or of single files", Args: command.NoArgs}
	addArchiver(create, true, true)
	verify := &cobra.Command{
		Use: "verify FILE", Short: "Read an archive completely and check its manifest", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := archive.Verify(args[0], archive.Limits{})
			if err == nil {
				err = checkManifest(m)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: good\n", args[0])
			return nil
		},
	}
	inspect := &cobra.Command{
		Use: "inspect FILE", Short: "Show an archive's manifest", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := archive.Verify(args[0], archive.Limits{})
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(m)
		},
	}
	cmd.AddCommand(create, inspect, verify)
	return cmd
}

func checkManifest(m archive.Manifest) error {
	switch {
	case !m.Present:
		return errors.New("it has no manifest (" + archive.ManifestPath + ")")
	case m.Model == nil || m.Model.Name == "":
		return errors.New("its manifest has no model.modelName")
	case m.Model.Handler == "":
		return errors.New("its manifest has no model.handler")
	}
	return nil
}

// addArchiver gives a command the flags of model-archiver, torch-model-archiver, or
// both, and makes it the archiver.
func addArchiver(cmd *cobra.Command, mms, torch bool) {
	var p archive.Packing
	var convert bool
	var extra string
	f := cmd.Flags()
	f.StringVar(&p.Name, "model-name", "", "the model's name, and that of the archive")
	f.StringVar(&p.Handler, "handler", "", "what answers requests: module[:function], or a file")
	f.StringVar(&p.Runtime, "runtime", "python", "python or python3")
	f.StringVar(&p.Export, "export-path", "", "folder for the archive; the working folder by default")
	f.StringVar(&p.Format, "archive-format", archive.FormatZip, "default (.mar), tgz or no-archive")
	f.BoolVarP(&p.Force, "force", "f", false, "replace an archive that is there")
	if mms {
		f.StringVar(&p.Folder, "model-path", "", "folder with the model's files")
		if torch {
			f.BoolVar(&convert, "convert", false, "not supported: models are not converted")
		} else {
			f.BoolVarP(&convert, "convert", "c", false, "not supported: models are not converted")
		}
	}
	if torch {
		f.StringVarP(&p.Version, "version", "v", "", "the model's version")
		f.StringVar(&p.Serialized, "serialized-file", "", "file with the model's weights")
		f.StringVar(&p.ModelFile, "model-file", "", "Python file with the model's architecture")
		f.StringVar(&extra, "extra-files", "", "other files, folders and patterns, with commas between them")
		f.StringVarP(&p.Requirements, "requirements-file", "r", "", "requirements.txt of the model")
		if mms {
			f.StringVar(&p.Config, "config-file", "", "model-config.yaml of the model")
		} else {
			f.StringVarP(&p.Config, "config-file", "c", "", "model-config.yaml of the model")
		}
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p.Now = time.Now()
		p.Extra = splitList(extra)
		if err := checkArchiver(&p, mms, torch, convert); err != nil {
			return command.Misused(cmd, err)
		}
		if info, err := os.Stat(p.Folder); p.Folder != "" && (err != nil || !info.IsDir()) {
			return fmt.Errorf("--model-path %s is not a folder", p.Folder)
		}
		out, err := archive.Pack(p)
		if err == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s is written\n", out)
		}
		return err
	}
}

// checkArchiver checks which flags are given.
func checkArchiver(p *archive.Packing, mms, torch, convert bool) error {
	switch {
	case p.Name == "":
		return errors.New("--model-name is required")
	case p.Handler == "":
		return errors.New("--handler is required")
	case convert:
		return errors.New("--convert is not supported: convert the model before it is archived")
	case mms && !torch && p.Folder == "":
		return errors.New("--model-path is required")
	case torch && !mms && p.Version == "":
		return errors.New("-v/--version is required")
	case mms && torch && p.Folder == "" && p.Version == "":
		return errors.New("give --model-path for an archive of Multi Model Server, or --version and files for one of TorchServe")
	case !slices.Contains([]string{"", archive.FormatZip, archive.FormatStored, archive.FormatTar, archive.FormatFolder}, p.Format):
		return fmt.Errorf("--archive-format is %q, want default, zip-store, tgz or no-archive", p.Format)
	case p.Runtime != "python" && p.Runtime != "python2" && p.Runtime != "python3":
		return fmt.Errorf("--runtime is %q, want python or python3", p.Runtime)
	}
	return nil
}

// splitList splits a list at its commas.
func splitList(text string) []string {
	var list []string
	for begin, i := 0, 0; i <= len(text); i++ {
		if i == len(text) || text[i] == ',' {
			if item := text[begin:i]; item != "" {
				list = append(list, item)
			}
			begin = i + 1
		}
	}
	return list
}

// newArchiver returns the command of an original archiver's name.
func newArchiver(name string) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: "Make a model archive", Args: command.NoArgs}
	addArchiver(cmd, name == "model-archiver", name == "torch-model-archiver")
	return cmd
}
