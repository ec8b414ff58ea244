"""The Django project: settings, URLs, the Celery application and the embedded servers."""
