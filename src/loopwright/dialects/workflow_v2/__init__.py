"""The dialect `workflow/v2.0`."""
